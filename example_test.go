package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// accounts is a storage that checks tokens.
type accounts struct {
	guard   fencing.Watermark
	balance int
}

func (a *accounts) Save(ctx context.Context, fence fencing.Fence, balance int) error {
	return a.guard.Do(ctx, fence, func(context.Context) error {
		fmt.Println("saved", balance)
		return nil
	})
}

// Deposit adds to the balance, in the step that checks the token.
func (a *accounts) Deposit(ctx context.Context, fence fencing.Fence, amount int) error {
	return a.guard.Do(ctx, fence, func(context.Context) error {
		a.balance += amount
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
	// Output:
	// saved 100
	// saved 200
	// refused: true
}

// readme holds the code of README.md and docs/migration.md; TestCodeOfThePages compares them.
type readme struct{}

func (r *readme) tenLines(ctx context.Context, store *accounts, amount int) error {
	locker, err := rwlock.Open("127.0.0.1:6379")
	if err != nil {
		return err
	}
	defer locker.Close()
	err = locker.Do(ctx, "account:42", func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, "account:42") // its token is larger than every token before it
		if err != nil {
			return err
		}
		return store.Deposit(ctx, fence, amount) // the storage refuses what is older than it has seen
	})
	if rwlock.Completed(err) { // the lease was lost, and the storage had accepted the work: do not repeat it
		return nil
	}
	return err
}

func (r *readme) lease(ctx context.Context, locker *rwlock.Locker, work func(context.Context) error) error {
	lease, err := locker.Lock(ctx, "report", rwlock.WithTTL(5*time.Second))
	if err != nil {
		return err // errors.Is: rwlock.ErrNotAcquired, rwlock.ErrNoQuorum, ctx.Err(), ...
	}
	defer lease.Release(ctx) // also works when ctx has ended
	return work(lease.Context(ctx))
}

func (r *readme) mutex(ctx context.Context, locker *rwlock.Locker, work func(context.Context) error) error {
	mu := locker.RWMutex("config")
	return mu.RDo(ctx, work) // or Do, to write; the context of work has the fence, and ends if the lock is lost
}

func (r *readme) nested(ctx context.Context, locker *rwlock.Locker, save func(context.Context) error) error {
	nested := reentrant.New(locker)
	return nested.Do(ctx, "order:7", func(ctx context.Context) error {
		return nested.Do(ctx, "order:7", save)
	})
}

func (r *readme) quorum(use func(*rwlock.Locker) error) error {
	locker, err := redlock.Open([]string{"redis-a:6379", "redis-b:6379", "redis-c:6379"})
	if err != nil {
		return err
	}
	defer locker.Close()
	return use(locker)
}

func (r *readme) guard(ctx context.Context, fence fencing.Fence, write func(context.Context) error) error {
	var guard fencing.Watermark
	err := guard.Do(ctx, fence, func(ctx context.Context) error { return write(ctx) })
	if errors.Is(err, fencing.ErrStale) {
		return err // a newer holder has been here
	}
	return err
}

type oldLock interface { // a *redsync.Mutex has it
	LockContext(ctx context.Context) error
	UnlockContext(ctx context.Context) (bool, error)
}

func both(ctx context.Context, old oldLock, locker *rwlock.Locker, work func(context.Context) error) error {
	if err := old.LockContext(ctx); err != nil {
		return err
	}
	defer old.UnlockContext(context.WithoutCancel(ctx))
	return locker.Do(ctx, "invoice:7", work)
}

func (r *readme) migrated(ctx context.Context, locker *rwlock.Locker, send func(context.Context) error) error {
	lease, err := locker.Lock(ctx, "invoice:7")
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	return send(lease.Context(ctx))
}

// These are compiled only: two of them want servers at fixed addresses.
var _ = []any{(&readme{}).tenLines, (&readme{}).quorum, both, (&readme{}).migrated}
