package rwlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// use is one short use of the lock.
func use(ctx context.Context, mu *rwlock.RWMutex) {
	if err := mu.Lock(ctx); err != nil {
		panic(err)
	}
	if err := mu.Unlock(ctx); err != nil {
		panic(err)
	}
}

// A process that takes the same lock again and again keeps it for a moment after each use. The next use then asks no
// server. A waiter of another process ends that moment at once.
func ExampleWithLinger() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	locker, err := rwlock.Open(server.Addr())
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	mu := locker.RWMutex("catalogue", rwlock.WithLinger(time.Minute))
	for range 100 {
		use(ctx, mu)
	}
	fmt.Println("leases for 100 sections:", locker.Stats().Acquired)

	other, err := rwlock.Open(server.Addr()) // another process
	if err != nil {
		panic(err)
	}
	defer other.Close()
	fmt.Println(other.Do(ctx, "catalogue", func(context.Context) error {
		fmt.Println("the other process is in")
		return nil
	}))
	// Output:
	// leases for 100 sections: 1
	// the other process is in
	// <nil>
}
