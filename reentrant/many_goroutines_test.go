package reentrant_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// calling is a call of several locks under way.
type calling struct {
	*testkit.Call
	all *reentrant.MultiHold
}

// lockAll starts a call that waits.
func (p *process) lockAll(ctx context.Context, wants []rwlock.Want, opts ...rwlock.LockOption) *calling {
	c := new(calling)
	c.Call = p.remote.W.Call(ctx, func(ctx context.Context) (err error) {
		c.all, err = p.LockAll(ctx, wants, opts...)
		return err
	})
	return c
}

// granted waits for the holds.
func (c *calling) granted(w *world) *reentrant.MultiHold {
	w.Helper()
	require.NoError(w, c.Result())
	return c.all
}

// A lock behind the one that a call waits for is free for the owner too, and the call may nest there in the end.
func TestACallKeepsNothingBehindItsWait(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		q := w.Process()
		for _, takes := range []func() *reentrant.Hold{
			func() *reentrant.Hold { return must(w)(p.TryLock(ctx, "c")) },
			func() *reentrant.Hold { return must(w)(p.Lock(ctx, "c")) },
			func() *reentrant.Hold { return expect.NoError(p.TryLockAll(ctx, rwlock.Writes("c"))).In(w).Holds()[0] },
		} {
			a := q.Take("a", rwlock.Write)
			waits := p.lockAll(ctx, rwlock.Writes("a", "b", "c"))
			w.UntilWaiting("a", 1)
			c := takes()
			w.Release(a)
			m := waits.granted(w)
			require.Equal(w, 2, m.Holds()[2].Depth())
			require.Equal(w, c.Lease(), m.Holds()[2].Lease())
			require.NoError(w, m.Release(ctx))
			require.NoError(w, c.Release(ctx))
			for _, name := range []string{"a", "b", "c"} {
				require.Empty(w, p.inspect(name).Holders)
			}
		}
		require.Zero(w, p.remote.Stats().Failed.Total(), "a call that begins again has not failed")
	})
}

// An owner that holds a later lock does not wait for a goroutine of its own that waits for an earlier one.
func TestAnOwnerWaitsForItselfInOrder(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		q := w.Process()
		a := q.Take("a", rwlock.Write)
		first := p.lockAll(ctx, rwlock.Writes("a"))
		w.UntilWaiting("a", 1)
		b := must(w)(p.Lock(ctx, "b"))
		_, err := p.LockAll(ctx, rwlock.Writes("a"), rwlock.WithMaxWait(time.Second))
		require.ErrorIs(w, err, rwlock.ErrLockOrder)
		require.ErrorIs(w, expect.ErrorOf(p.TryLockAll(ctx, rwlock.Writes("a"))), rwlock.ErrNotAcquired)
		require.NoError(w, b.Release(ctx))
		second := p.lockAll(ctx, rwlock.Writes("a"))
		w.Release(a)
		outer, inner := first.granted(w), second.granted(w)
		if outer.Holds()[0].Depth() > 1 {
			outer, inner = inner, outer
		}
		require.NoError(w, inner.Release(ctx))
		require.NoError(w, outer.Release(ctx))
	})
}

// WithMaxWait bounds the wait for another goroutine of the owner, and what follows it, together.
func TestMaxWaitForAnotherGoroutine(t *testing.T) {
	asOwner(t, inFakeTime, func(w *world, p *process, ctx context.Context) {
		q := w.Process()
		q.Take("a", rwlock.Write)
		for _, firstFor := range []time.Duration{300 * time.Millisecond, time.Minute} {
			for name, take := range map[string]func(...rwlock.LockOption) error{
				"Lock": func(opts ...rwlock.LockOption) error { return expect.ErrorOf(p.Lock(ctx, "a", opts...)) },
				"LockAll": func(opts ...rwlock.LockOption) error {
					return expect.ErrorOf(p.LockAll(ctx, append(rwlock.Writes("0"), rwlock.Reads("a")...), opts...))
				},
				"DoAll": func(opts ...rwlock.LockOption) error {
					return p.DoAll(ctx, rwlock.Writes("a", "z"), func(context.Context) error { return nil }, opts...)
				},
			} {
				begun := time.Now()
				soon, cancel := context.WithTimeout(ctx, firstFor)
				first := p.lockAll(soon, rwlock.Writes("a"))
				w.UntilWaiting("a", 1)
				err := take(rwlock.WithMaxWait(time.Second))
				require.Equal(w, time.Second, time.Since(begun), name)
				require.Equal(w, time.Second, testkit.As[*rwlock.AcquireError](w, err, name).Waited)
				expect.Fails(w, err, `"a" not acquired after 1s`, "WithMaxWait limit of 1s reached")
				require.NotErrorIs(w, err, context.DeadlineExceeded)
				cancel()
				require.Error(w, first.Result())
			}
		}
	})
}

// A call that waits or fails has no part in the holds of other goroutines of the owner.
func TestACallThatFailsEndsNoOtherHold(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, there := ownedTwice(w)
		c := w.Process().Take("c", rwlock.Write)
		for name, x := range map[string]struct {
			at  *process
			ctx context.Context
		}{"nested": {p, ctx}, "joined": {q, there}} {
			a := must(w)(p.Lock(ctx, "a"))
			soon, cancel := context.WithCancel(x.ctx)
			fails := x.at.lockAll(soon, rwlock.Writes("a", "c"))
			w.UntilWaiting("c", 1)
			h := must(w)(x.at.Lock(x.ctx, "a"))
			under := h.Context(x.ctx)
			if x.at == p {
				require.Equal(w, 2, h.Depth())
			} else {
				require.NoError(w, a.Release(ctx))
			}
			cancel()
			require.ErrorIs(w, fails.Result(), context.Canceled, name)
			require.NoError(w, under.Err(), name)
			require.NoError(w, h.Lease().Err(), name)
			require.Len(w, p.inspect("a").Holders, 1, name)
			require.NoError(w, h.Release(x.ctx))
			require.NoError(w, a.Release(ctx))
			require.Empty(w, p.inspect("a").Holders, name)
		}
		w.Release(c)
	})
}

// A hold in which a waiting call is to nest can be released meanwhile. The call takes the lock then.
func TestAWaitingCallKeepsNoHoldOfAnotherGoroutine(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		q := w.Process()
		a, c := must(w)(p.Lock(ctx, "a")), q.Take("c", rwlock.Write)
		waits := p.lockAll(ctx, rwlock.Writes("a", "c"))
		w.UntilWaiting("c", 1)
		require.NoError(w, a.Release(ctx))
		require.Empty(w, p.inspect("a").Holders)
		w.Release(c)
		m := waits.granted(w)
		require.Equal(w, 1, m.Holds()[0].Depth())
		require.NoError(w, m.Holds()[0].Lease().Err())
		require.NoError(w, m.Release(ctx))
	})
}

// A lock that a waiting call has joined can be joined by another goroutine of the owner.
func TestAJoinedLockIsSharedWhileACallWaits(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, there := ownedTwice(w)
		for _, stays := range []bool{true, false} {
			a := must(w)(p.Lock(ctx, "a"))
			c := w.Process().Take("c", rwlock.Write)
			waits := q.lockAll(there, rwlock.Writes("a", "c"))
			w.UntilWaiting("c", 1)
			h := must(w)(q.Lock(there, "a"))
			if !stays {
				require.NoError(w, h.Release(there))
			}
			w.Release(c)
			m := waits.granted(w)
			require.Equal(w, h.Token(), m.Holds()[0].Token())
			require.NoError(w, a.Release(ctx))
			if stays {
				require.Equal(w, 2, m.Holds()[0].Depth())
				require.Equal(w, 1, p.inspect("a").Holders[0].Count)
			}
			require.NoError(w, m.Release(there))
			require.NoError(w, h.Release(there))
			require.Empty(w, p.inspect("a").Holders)
		}
	})
}

// gated is a client whose calls wait for a channel that their context names.
type gated struct{ rueidis.Client }

type gate struct{}

func (c gated) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if opened, ok := ctx.Value(gate{}).(chan struct{}); ok {
		<-opened
	}
	return c.Client.Do(ctx, cmd)
}

// wrapped starts a process with a client that is wrapped.
func wrapped(w *world, wrap func(rueidis.Client) rueidis.Client) *process {
	w.Helper()
	link := w.NewLink()
	client := expect.NoError(rwlock.Dial("", link.Option())).In(w)
	w.Cleanup(client.Close)
	remote := w.ProcessWith(link, expect.NoError(rwlock.Wrap(client, wrap)).In(w))
	return &process{reentrant.New(remote.Locker), remote}
}

// A call that has joined a lock, and has just got the last one, needs no other goroutine of the owner that is joining
// it too. Else both could give up what they have in turns, for ever.
func TestACallThatHasAllLocksDoesNotBeginAgain(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q, r := wrapped(w, func(c rueidis.Client) rueidis.Client { return gated{c} }), start(w), w.Process()
		ctx, there := ownedTwice(w)
		a, b := must(w)(q.Lock(ctx, "a")), r.Take("b", rwlock.Write)
		waits := p.lockAll(there, rwlock.Writes("a", "b"), rwlock.WithMaxWait(time.Second))
		w.UntilWaiting("b", 1)
		opened := make(chan struct{})
		joins := p.lockAll(context.WithValue(there, gate{}, opened), rwlock.Writes("a", "c"))
		w.Pass(10 * time.Millisecond) // it looks for a hold of a
		w.Release(b)
		outer := waits.granted(w)
		close(opened)
		inner := joins.granted(w)
		require.Equal(w, outer.Holds()[0].Lease(), inner.Holds()[0].Lease())
		require.NoError(w, inner.Release(there))
		require.NoError(w, outer.Release(there))
		require.NoError(w, a.Release(ctx))
		require.Empty(w, p.inspect("a").Holders)
	})
}

// Locks that a call has joined elsewhere are given back together: a silent server delays them by one release timeout.
func TestJoinedLocksAreReleasedTogether(t *testing.T) {
	const releaseTimeout = 2 * time.Second
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	inFakeTime(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		outer := expect.NoError(p.LockAll(ctx, rwlock.Writes(names...))).In(w)
		there := reentrant.AsOwner(w.Ctx, owner)
		joined := expect.NoError(q.LockAll(there, rwlock.Writes(names...))).In(w)
		q.remote.Link.Blackhole(testredis.Both)
		began := time.Now()
		require.Error(w, joined.Release(there))
		require.LessOrEqual(w, time.Since(began), releaseTimeout+100*time.Millisecond)
		q.remote.Link.Restore()
		w.Pass(20 * time.Second)
		require.NoError(w, outer.Release(ctx))
	})
	inFakeTime(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		outer := expect.NoError(p.LockAll(ctx, rwlock.Writes(names...))).In(w)
		q.remote.WarmUp()
		q.remote.Link.Delay(5 * time.Millisecond)
		call := w.Call(reentrant.AsOwner(w.Ctx, owner), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			require.Error(w, expect.ErrorOf(q.LockAll(ctx, rwlock.Writes(names...))))
			require.LessOrEqual(w, time.Since(began), 200*time.Millisecond+releaseTimeout+100*time.Millisecond)
			return nil
		})
		w.Pass(45 * time.Millisecond) // it has joined some of them
		q.remote.Link.Blackhole(testredis.Both)
		require.NoError(w, call.Result())
		q.remote.Link.Restore()
		w.Pass(20 * time.Second)
		require.NoError(w, outer.Release(ctx))
	})
}

var (
	manySeeds = flag.Int("many.seeds", 1, "how many seeds TestManyGoroutinesOfOwners tries")
	manyFrom  = flag.Uint64("many.from", 1, "the first of these")
)

// Goroutines of several owners take several locks in all ways: none waits for a minute, and nothing is left.
func TestManyGoroutinesOfOwners(t *testing.T) {
	for seed := *manyFrom; seed < *manyFrom+uint64(*manySeeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { inFakeTime(t, func(w *world) { goroutinesOfOwners(w, seed) }) })
	}
}

func goroutinesOfOwners(w *world, seed uint64) {
	w.Net.Way = time.Millisecond
	processes := []*process{start(w), start(w)}
	here := []context.Context{reentrant.WithOwner(w.Ctx), reentrant.WithOwner(w.Ctx)} // each owner in one process
	both := reentrant.AsOwner(w.Ctx, reentrant.NewOwner())                            // joins
	var all sync.WaitGroup
	until := time.Now().Add(5 * time.Second)
	for i := range 10 {
		g := &goroutine{w: w, p: processes[i%2], ctx: both, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		if owner := i % 3; owner < len(here) {
			g.p, g.ctx = processes[owner], here[owner]
		}
		all.Go(func() {
			for time.Now().Before(until) {
				g.section()
			}
		})
	}
	all.Wait()
	w.Pass(time.Minute)
	for _, name := range []string{"a", "b", "c", "d"} {
		state := processes[0].inspect(name)
		require.Empty(w, state.Holders, name)
		require.Empty(w, state.Waiters, name)
	}
}

// goroutine works for an owner.
type goroutine struct {
	w   *world
	p   *process
	ctx context.Context
	rng *rand.Rand
}

// section takes some locks, works under them, and releases them.
func (g *goroutine) section() {
	wants := rwlock.Writes("a", "b", "c", "d")
	g.rng.Shuffle(len(wants), func(i, k int) { wants[i], wants[k] = wants[k], wants[i] })
	wants = wants[:1+g.rng.IntN(len(wants))]
	for i, readers := 0, g.rng.IntN(4); i < len(wants); i++ { // of 3: none, some or all
		if g.rng.IntN(3) < readers {
			wants[i].Mode = rwlock.Read
		}
	}
	patience := time.Minute
	if g.rng.IntN(4) == 0 {
		patience = time.Duration(g.rng.IntN(40)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	take := g.p.LockAll
	if g.rng.IntN(5) < 2 {
		take = g.p.TryLockAll
	}
	m, err := take(ctx, wants)
	if err != nil {
		if patience == time.Minute && errors.Is(err, context.DeadlineExceeded) {
			g.w.Errorf("waited for a minute: %v", err)
		}
		time.Sleep(time.Duration(1+g.rng.IntN(5)) * time.Millisecond)
		return
	}
	under := m.Context(g.ctx)
	time.Sleep(time.Duration(g.rng.IntN(20)) * time.Millisecond)
	if err := under.Err(); err != nil {
		g.w.Errorf("ended by another goroutine: %v", context.Cause(under))
	}
	for err = m.Release(g.ctx); errors.Is(err, reentrant.ErrOrder); err = m.Release(g.ctx) {
		time.Sleep(time.Millisecond) // another goroutine of the owner nests in it
	}
	if err != nil {
		g.w.Errorf("release: %v", err)
	}
}

// spentContext is the context of a request that a web framework uses again: once the request is over, it panics.
type spentContext struct {
	context.Context
	over atomic.Bool
}

func (c *spentContext) Value(key any) any {
	if c.over.Load() {
		panic("the request is over")
	}
	return c.Context.Value(key)
}

// asking is a client with a hook that asks each context for a value, as a tracer does.
type asking struct{ rueidis.Client }

func (c asking) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	_ = ctx.Value(spentContext{})
	return c.Client.Do(ctx, cmd)
}

// Locks that were joined are released on goroutines of the library: a context that panics does not end the process
// there, and all locks are given back.
func TestALockThatWasJoinedOutlivesItsCallersContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		q := wrapped(w, func(c rueidis.Client) rueidis.Client { return asking{c} })
		mine, there := ownedTwice(w)
		outer := must(w)(p.Lock(mine, "a"))
		parent, cancel := context.WithCancel(there)
		defer cancel()
		ctx := &spentContext{Context: parent}
		func() {
			defer func() { _ = recover() }()
			_ = q.DoAll(ctx, rwlock.Writes("a", "b"), func(context.Context) error {
				ctx.over.Store(true)
				return nil
			})
		}()
		ctx.over.Store(false)
		require.NoError(w, outer.Release(w.Ctx))
		for _, name := range []string{"a", "b"} {
			w.Release(expect.NoError(p.remote.Lock(w.Soon(100*time.Millisecond), name)).In(w))
		}
	})
}
