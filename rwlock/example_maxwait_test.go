package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// report names who is in the way.
func report(err error) {
	if refused, ok := errors.AsType[*rwlock.AcquireError](err); ok {
		fmt.Println("not acquired, held by", refused.Holder.Meta)
		return
	}
	fmt.Println(err)
}

// A wait has no end of its own. WithMaxWait gives it one, and leaves ctx to the work.
func ExampleWithMaxWait() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	locker, err := rwlock.Open(server.Addr(), rwlock.WithMeta("worker 1"))
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	held, err := locker.Lock(ctx, "report")
	if err != nil {
		panic(err)
	}
	defer held.Release(ctx)
	report(locker.Do(ctx, "report", func(context.Context) error {
		fmt.Println("never printed")
		return nil
	}, rwlock.WithMaxWait(200*time.Millisecond)))
	// Output: not acquired, held by worker 1
}
