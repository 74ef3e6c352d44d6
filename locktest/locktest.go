package locktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// Locker is a *rwlock.Locker over a server of its own, with methods by which a test has other processes and time
// interfere. Give the code under test the embedded Locker. The methods are for the goroutine of the test, because they
// end the test if they cannot do what they are asked for.
type Locker struct {
	*rwlock.Locker

	t       testing.TB
	opts    []rwlock.Option
	server  *server
	blocker *rwlock.Locker // makes each of the following wait once
	rival   *rwlock.Locker // of Hold
	waits   int            // so far
}

// New starts a server and returns a locker with these options. All of it is closed when the test ends, and an option
// that rwlock.New refuses ends the test. Without WithLogger nothing is logged. Locks of one New exclude no locks of
// another. New, Another and Lose take some milliseconds, also of the time of a bubble.
//
// The locker has waited once, for a lock called "locktest/0", and has given up: since then it receives messages, and so
// it hears of a loss at once. Stats and Trace show this acquisition as a failed one.
func New(t testing.TB, opts ...rwlock.Option) *Locker {
	t.Helper()
	silent := rwlock.WithLogger(slog.New(slog.DiscardHandler)) // goes before slog.Default, and not before an option
	l := &Locker{t: t, opts: append([]rwlock.Option{silent}, opts...), server: startServer(t)}
	l.blocker = l.open(l.ofAnother())
	l.Locker = l.process(l.opts)
	l.rival = l.Another(rwlock.WithMeta("another process"))
	return l
}

// Another returns a locker of another process on the same server, with the options of New and these. WithTrace and
// WithLogger of New are left out, so what they report is of the locker of New. It is closed when the test ends.
func (l *Locker) Another(opts ...rwlock.Option) *rwlock.Locker {
	l.t.Helper()
	return l.process(append(l.ofAnother(), opts...))
}

// ofAnother returns the options of New for another process.
func (l *Locker) ofAnother() []rwlock.Option {
	silent := slog.New(slog.DiscardHandler)
	return append(slices.Clone(l.opts), rwlock.WithTrace(&rwlock.Trace{}), rwlock.WithLogger(silent))
}

// Hold has another process take the lock for writing and keep it, until the lease that it returns is released, or to
// the end of the test. The lock has to be free: if a process holds it or waits for it, Hold ends the test.
func (l *Locker) Hold(name string) *rwlock.Lease {
	l.t.Helper()
	lease, err := l.rival.TryLock(l.t.Context(), name)
	if err != nil {
		l.t.Fatalf("locktest: Hold(%q): %v", name, err)
	}
	return lease
}

// Lose takes the lock away from every process that holds it, for writing or reading. When it returns the leases have
// ended: their contexts are cancelled, and their errors match rwlock.ErrLost. The lock is free, or has gone to the next
// waiter. If no process holds the lock, Lose ends the test.
//
// The reason of the loss is rwlock.ReasonBroken. To code that does not look at the reason it is like any other loss.
func (l *Locker) Lose(name string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	state, err := l.Inspect(ctx, name)
	if err != nil {
		l.t.Fatalf("locktest: Lose(%q): %v", name, err)
	}
	if len(state.Holders) == 0 {
		l.t.Fatalf("locktest: Lose(%q): no process holds the lock", name)
	}
	for _, holder := range state.Holders { // the process gives the hold back after it has ended the contexts
		err := l.Break(ctx, name, holder.Hold, "locktest.Lose", rwlock.BreakOnceHeard())
		if err != nil && !errors.Is(err, rwlock.ErrNotHeld) {
			l.t.Fatalf("locktest: Lose(%q): %v", name, err)
		}
	}
}

// Advance moves the server's clock ahead by d. The processes do not notice: it is as if all of them had been paused for
// d just now. Holds and places in the queue whose time is over are gone. So after Advance of at least the TTL another
// process gets the lock, while the code under test goes on under a lease that it still trusts. Its fence is stale as
// soon as the next holder has written. The lease is lost with its next renewal, after a third of the TTL at the latest.
// A waiter looks again within a second.
//
// It does not replace time.Sleep in a bubble of testing/synctest, which moves every clock. d must be positive.
func (l *Locker) Advance(d time.Duration) {
	l.t.Helper()
	if d <= 0 {
		l.t.Fatalf("locktest: Advance(%v): the time must be positive", d)
	}
	l.server.advance(d)
}

// process returns a locker that receives messages. Only a waiter makes a locker subscribe, and a hold that is taken
// before could not be told of its loss until its next renewal. So the locker waits once.
func (l *Locker) process(opts []rwlock.Option) *rwlock.Locker {
	l.t.Helper()
	locker := l.open(opts)
	name := fmt.Sprintf("locktest/%d", l.waits) // a name of its own: the release may be handed to the waiter that left
	inTheWay, err := l.blocker.TryLock(l.t.Context(), name)
	if err != nil {
		l.t.Fatalf("locktest: %v", err)
	}
	l.waits++
	subscribers := l.server.subscribers()
	ctx, cancel := context.WithCancel(l.t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if lease, err := locker.Lock(ctx, name, rwlock.WithMaxWait(patience)); err == nil {
			_ = lease.Release(ctx)
		}
	})
	l.await("messages", func() bool { return l.server.subscribers() > subscribers })
	cancel()
	waiting.Wait()
	_ = inTheWay.Release(l.t.Context())
	return locker
}

// open connects a locker to the server.
func (l *Locker) open(opts []rwlock.Option) *rwlock.Locker {
	l.t.Helper()
	client, err := l.server.dial()
	if err != nil {
		l.t.Fatalf("locktest: %v", err)
	}
	l.t.Cleanup(client.Close)
	locker, err := rwlock.New(client, opts...)
	if err != nil {
		l.t.Fatalf("locktest: %v", err)
	}
	l.t.Cleanup(func() { _ = locker.Close() })
	return locker
}

// patience bounds the wait for an event that never comes.
const patience = 30 * time.Second

// await returns when the event has happened.
func (l *Locker) await(event string, happened func() bool) {
	l.t.Helper()
	for begun := time.Now(); !happened(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			l.t.Fatalf("locktest: no sign of %s after %v", event, patience)
		}
	}
}
