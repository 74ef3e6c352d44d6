package rwlock_test

import (
	"context"
	"fmt"
)

// A reader that finds something to write becomes the writer, and nobody writes between what it has read and what it
// writes.
func ExampleRWMutex_Upgrade() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	mu := locker.RWMutex("stock")
	if err := mu.RLock(ctx); err != nil {
		panic(err)
	}
	read := mu.Token()
	if err := mu.Upgrade(ctx); err != nil { // rwlock.ErrUpgrade: unlock, lock, and read again
		_ = mu.RUnlock(ctx)
		panic(err)
	}
	fmt.Println("a new token:", mu.Token() > read)
	fmt.Println(mu.Unlock(ctx))
	// Output:
	// a new token: true
	// <nil>
}

// A writer that has written goes on reading what it wrote, and lets the other readers in.
func ExampleRWMutex_Downgrade() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	mu := locker.RWMutex("stock")
	if err := mu.Lock(ctx); err != nil {
		panic(err)
	}
	if err := mu.Downgrade(ctx); err != nil {
		_ = mu.Unlock(ctx)
		panic(err)
	}
	fmt.Println(mu.TryRLock(ctx)) // another reader
	fmt.Println(mu.RUnlock(ctx), mu.RUnlock(ctx))
	// Output:
	// <nil>
	// <nil> <nil>
}
