package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accounts is a storage that checks tokens.
type accounts struct {
	guard fencing.Watermark
}

func (a *accounts) Save(ctx context.Context, fence fencing.Fence, balance int) error {
	if fence.Mode != fencing.Write { // Do would run it beside other readers
		return fmt.Errorf("%w for writing: %v", fencing.ErrMissing, fence)
	}
	return a.guard.Do(ctx, fence, func(context.Context) error {
		fmt.Println("saved", balance)
		return nil
	})
}

// The whole way: a lock, its token, and a storage that refuses the holder who came back too late.
func Example() {
	server, _ := miniredis.Run()
	defer server.Close()
	locker, err := rwlock.Open(server.Addr())
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	ctx, store := context.Background(), &accounts{}
	var late fencing.Fence
	save := func(balance int) func(context.Context) error {
		return func(ctx context.Context) error {
			fence, err := fencing.Require(ctx, "account:42")
			if err != nil {
				return err
			}
			late = fence
			return store.Save(ctx, fence, balance)
		}
	}
	_ = locker.Do(ctx, "account:42", save(100))
	stalled := late
	_ = locker.Do(ctx, "account:42", save(200))
	fmt.Println("refused:", errors.Is(store.Save(ctx, stalled, 101), fencing.ErrStale))
	err = locker.RDo(ctx, "account:42", save(102))
	fmt.Println("a reader refused:", errors.Is(err, fencing.ErrMissing))
	// Output:
	// saved 100
	// saved 200
	// refused: true
	// a reader refused: true
}
