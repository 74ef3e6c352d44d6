package rwlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// longWork takes longer than the TTL.
func longWork(ctx context.Context) error {
	time.Sleep(time.Second)
	fmt.Println("still locked:", ctx.Err() == nil)
	return nil
}

// The TTL is how long a process that was killed blocks the others, and not how long the work may take: the lease is
// renewed while the work runs.
func ExampleWithTTL() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	locker, err := rwlock.Open(server.Addr(), rwlock.WithTTL(5*time.Second)) // of all locks of this locker
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	fmt.Println(locker.Do(context.Background(), "import", longWork, rwlock.WithTTL(500*time.Millisecond)))
	// Output:
	// still locked: true
	// <nil>
}
