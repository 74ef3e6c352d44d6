package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// ready answers a readiness probe. Ping has an error for each server that is down. Only if too few are left for a
// quorum, no lock can be had, and the process is out of service. One master is its own quorum.
func ready(locker *rwlock.Locker) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := locker.Ping(r.Context()); errors.Is(err, rwlock.ErrNoQuorum) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// probe asks as a load balancer does.
func probe(locker *rwlock.Locker) int {
	answer := httptest.NewRecorder()
	ready(locker)(answer, httptest.NewRequest(http.MethodGet, "/ready", nil))
	return answer.Code
}

// One of three masters may be down. With two down no lock is granted, and the probe says so.
func ExampleLocker_Ping() {
	var masters []*miniredis.Miniredis
	var addrs []string
	for range 3 {
		m, err := miniredis.Run()
		if err != nil {
			panic(err)
		}
		defer m.Close()
		masters, addrs = append(masters, m), append(addrs, m.Addr())
	}
	if err := redlock.Found(context.Background(), addrs); err != nil { // once, for new masters
		panic(err)
	}
	locker, err := redlock.Open(addrs, rwlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	fmt.Println("three masters:", probe(locker))
	masters[0].Close()
	fmt.Println("two masters:", probe(locker))
	masters[1].Close()
	fmt.Println("one master:", probe(locker))
	// Output:
	// three masters: 200
	// two masters: 200
	// one master: 503
}
