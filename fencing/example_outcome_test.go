package fencing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// ledger is guarded data, and what befalls its holder before and after the write.
type ledger struct {
	locker        *rwlock.Locker
	guard         fencing.Watermark
	before, after func(ctx context.Context) context.Context
	entries       []string
}

// post does the work in a section and says what became of it.
func (l *ledger) post(ctx context.Context, entry string) string {
	write := func(ctx context.Context) error {
		l.entries = append(l.entries, entry)
		return ctx.Err()
	}
	committed := false
	err := l.locker.Do(ctx, "accounts/7", func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, "accounts/7")
		if err != nil {
			return err
		}
		if err := l.guard.Do(l.before(ctx), fence, write); err != nil {
			return err
		}
		committed = true // accepted and completed: it stands, whatever becomes of the lock
		l.after(ctx)
		return nil
	})

	switch { // in this order, since an error of Do may be several: the refusal, the loss, and what the loss has cancelled
	case err == nil:
		return "done"
	case errors.Is(err, fencing.ErrStale):
		return "not done: refused, a newer holder has been here"
	case errors.Is(err, fencing.ErrLost) && committed:
		return "done, and the lock was lost afterwards"
	case errors.Is(err, fencing.ErrLost):
		return "not done: the lock was lost on the way"
	case errors.Is(err, context.Canceled):
		return "not done: the caller gave up"
	default:
		return "failed: " + err.Error()
	}
}

// What became of the work, when the error of a section may be several errors.
func Example_outcome() {
	redis, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer redis.Close()
	client, err := rwlock.Dial(redis.Addr(), rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	locker, err := rwlock.New(client)
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	l := &ledger{locker: locker, before: undisturbed, after: undisturbed}
	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(l.post(ctx, "a"))

	// A pause in which somebody else gets the lock and writes. TestOutcomes has the losses that are noticed.
	l.before = func(ctx context.Context) context.Context {
		fence, _ := fencing.FromContext(ctx, "accounts/7")
		fence.Token++
		_ = l.guard.Claim(fence)
		return context.WithoutCancel(ctx)
	}
	fmt.Println(l.post(ctx, "b"))

	cancel()
	fmt.Println(l.post(ctx, "c"))
	fmt.Println(l.entries)
	// Output:
	// done
	// not done: refused, a newer holder has been here
	// not done: the caller gave up
	// [a]
}

func undisturbed(ctx context.Context) context.Context { return ctx }
