package rwlock_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// stock is what all workers change: read, compute, write. Without the lock most changes would be lost.
var stock = 100

// sell takes one piece from the stock.
func sell(ctx context.Context, locker *rwlock.Locker) error {
	return locker.Do(ctx, "stock", func(context.Context) error {
		found := stock
		time.Sleep(time.Millisecond) // the other workers run meanwhile, and wait at the lock
		stock = found - 1
		return nil
	}, rwlock.WithMaxWait(10*time.Second))
}

// A whole program: ten workers, each with a locker of its own as if it were a process, change the same data. It runs on
// a Redis inside the program; with one of your own, give Open its address.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	var workers sync.WaitGroup
	for range 10 {
		workers.Go(func() {
			locker, err := rwlock.Open(server.Addr()) // or "localhost:6379", or a URL
			if err != nil {
				panic(err)
			}
			defer locker.Close()
			if err := sell(context.Background(), locker); err != nil {
				fmt.Println(err)
			}
		})
	}
	workers.Wait()
	fmt.Println("left:", stock)
	// Output: left: 90
}
