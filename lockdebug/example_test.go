package lockdebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/lockdebug"
	"github.com/seed74116694/fencelock/rwlock"
)

// The page stands beside net/http/pprof, on an address that only operators reach. A program can read it too.
func ExampleHandler() {
	server, err := miniredis.Run() // a Redis inside this process; a program dials its own
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	locker, err := rwlock.New(client, rwlock.WithMeta("worker 1"))
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	mux := http.NewServeMux()
	mux.Handle("/debug/locks", lockdebug.Handler(locker))

	lease, err := locker.Lock(context.Background(), "orders")
	if err != nil {
		panic(err)
	}
	defer lease.Release(context.Background())
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/locks?format=json&q=orders", nil))
	var shown struct {
		Leases []struct {
			Name, Mode, Meta string
			LeftMS           int64 `json:"left_ms"`
		}
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &shown); err != nil {
		panic(err)
	}
	for _, l := range shown.Leases {
		fmt.Println(l.Name, "is held for", l.Mode, "by", l.Meta, "for more than 9 s:", l.LeftMS > 9000)
	}
	// Output:
	// orders is held for write by worker 1 for more than 9 s: true
}
