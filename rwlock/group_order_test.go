package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// arrivals asks for locks in the order of its calls, and notes in which order some of the callers got theirs.
type arrivals struct {
	w     *world
	order testkit.Notes[string]
}

func (a *arrivals) ask(label string, lock func(context.Context) (*rwlock.Lease, error)) {
	go func() {
		lease, err := lock(a.w.Ctx)
		if err != nil {
			a.w.Errorf("%s: %v", label, err)
			return
		}
		if label != "" {
			a.order.Add(label)
		}
		if err := lease.Release(a.w.Ctx); err != nil {
			a.w.Errorf("%s: %v", label, err)
		}
	}()
}

// writer asks for a lock as a member of a group may.
func writer(p *process, name string) func(context.Context) (*rwlock.Lease, error) {
	return func(ctx context.Context) (*rwlock.Lease, error) { return p.Lock(ctx, name) }
}

// useGroup has the server know the script of groups.
func useGroup(w *world, p *process) {
	all, err := p.LockAll(w.Ctx, rwlock.Writes("w1", "w2", "w3", "w4"))
	require.NoError(w, err)
	require.NoError(w, all.Release(w.Ctx))
}

// A group of the callers of a process does not pass one of them that asked before, in another way, for the same lock.
func TestAGroupDoesNotPassAnEarlierRequest(t *testing.T) {
	for what, first := range map[string]func(context.Context, *process) (*rwlock.Lease, error){
		"a reader": func(ctx context.Context, p *process) (*rwlock.Lease, error) { return p.RLock(ctx, "n") },
		"another TTL": func(ctx context.Context, p *process) (*rwlock.Lease, error) {
			return p.Lock(ctx, "n", rwlock.WithTTL(5*time.Second))
		},
	} {
		subtestInFakeTime(t, what, func(w *world) {
			n := w.Net
			n.Tuned = true
			p := w.ProcessOver(n)
			p.WarmUp()
			useGroup(w, p)
			w.Pass(time.Second)
			asks := &arrivals{w: w}
			w.Mini.Freeze()
			for i := range 5 { // all senders of the pipeline wait for the server
				asks.ask("", writer(p, fmt.Sprint("x", i)))
				w.Pass(10 * time.Millisecond)
			}
			asks.ask("first", func(ctx context.Context) (*rwlock.Lease, error) { return first(ctx, p) })
			w.Settle()
			for _, name := range []string{"a", "b", "c"} {
				asks.ask("", writer(p, name))
			}
			w.Settle()
			asks.ask("second", writer(p, "n"))
			w.Settle()
			w.Mini.Thaw()
			w.Pass(5 * time.Second)
			require.Equal(w, []string{"first", "second"}, asks.order.All())
		})
	}
}

// A group queues a writer at its first contention in the order of arrival, before one of another process that asks
// later.
func TestAGroupQueuesAWriter(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := tuned(w), tuned(w)
		useGroup(w, p)
		requireArrivals(w, p, q, rwlock.Write)
	})
}

// A lock that callers of a process have waited for lately is asked for in no group, which leaves what is not the common
// case: its request would arrive a round trip later, behind one of another process.
func TestAContendedLockIsAskedForInNoGroup(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := tuned(w), tuned(w)
		useGroup(w, p)
		for _, name := range contendedNames {
			held := q.Take(name, rwlock.Write)
			w.Release(p.Queue(name, rwlock.Write).GrantedAfter(held))
		}
		requireArrivals(w, p, q, rwlock.Read)
	})
}

// tuned returns a process that has used its connection.
func tuned(w *world) *process {
	n := w.Net
	n.Tuned = true
	p := w.ProcessOver(n)
	p.WarmUp()
	return p
}

// Several, since one of the callers of a burst may find nobody to join.
var contendedNames = []string{"n0", "n1", "n2"}

// requireArrivals has the second process hold locks, and the first one ask for these at once with others. Then the
// second process asks for each of them, and gets it after the first one.
func requireArrivals(w *world, p, q *process, mode rwlock.Mode) {
	var held []*rwlock.Lease
	for _, name := range contendedNames {
		held = append(held, q.Take(name, mode))
	}
	w.Release(p.Take("warm", rwlock.Write)) // an answer of this moment
	p.Link.Delay(50 * time.Millisecond)
	asks := &arrivals{w: w}
	for i := range 3 { // with three under way the next ones are gathered
		asks.ask("", writer(p, fmt.Sprint("x", i)))
	}
	w.Settle()
	for _, name := range contendedNames {
		asks.ask("first "+name, writer(p, name))
	}
	for i := range 6 {
		asks.ask("", writer(p, fmt.Sprint("y", i)))
	}
	w.Pass(60 * time.Millisecond) // they have arrived
	for _, name := range contendedNames {
		asks.ask("second "+name, writer(q, name))
	}
	w.Pass(500 * time.Millisecond)
	var want []string
	for _, lease := range held {
		w.Release(lease)
		w.Pass(time.Second)
		want = append(want, "first "+lease.Name(), "second "+lease.Name())
	}
	require.Equal(w, want, asks.order.All())
}
