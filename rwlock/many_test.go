package rwlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// together is a call of LockAll under way.
type together struct {
	*testkit.Call
	all *rwlock.MultiLease
}

// takeAll starts a call that waits.
func takeAll(p *process, ctx context.Context, wants []rwlock.Want, opts ...rwlock.LockOption) *together {
	c := new(together)
	c.Call = p.W.Call(ctx, func(ctx context.Context) (err error) {
		c.all, err = p.LockAll(ctx, wants, opts...)
		return err
	})
	return c
}

// granted waits for the leases.
func (c *together) granted(w *world) *rwlock.MultiLease {
	w.Helper()
	require.NoError(w, c.Result())
	return c.all
}

// failed waits for the error, after which the call holds nothing.
func (c *together) failed(w *world) error {
	w.Helper()
	err := c.Result()
	require.Error(w, err)
	require.Nil(w, c.all)
	return err
}

// isFree reports whether nobody holds the lock or waits for it.
func isFree(w *world, name string) bool {
	state := w.Inspect(name)
	return len(state.Holders)+len(state.Waiters) == 0
}

// heldOf returns which of the names are held, in their order.
func heldOf(w *world, names ...string) (held []string) {
	for _, name := range names {
		if len(w.Inspect(name).Holders) > 0 {
			held = append(held, name)
		}
	}
	return held
}

// writes counts what a client writes to its connections.
type writes struct{ n atomic.Int64 }

func (c *writes) option() testkit.Net {
	return testkit.Net{Tuned: true, Change: func(o *rueidis.ClientOption) {
		dial := o.DialCtxFn
		o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, cfg *tls.Config) (net.Conn, error) {
			conn, err := dial(ctx, addr, dialer, cfg)
			return countedConn{conn, c}, err
		}
	}}
}

type countedConn struct {
	net.Conn
	writes *writes
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.n.Add(1)
	return c.Conn.Write(b)
}

// Ten free locks on one Redis are one write of the client and one round trip, and so are their releases. Those for
// writing are one call.
func TestUncontendedSeveralLocksAreOneRoundTrip(t *testing.T) {
	const way = 10 * time.Millisecond
	inFakeTime(t, func(w *world) {
		var written writes
		n := written.option()
		p := w.ProcessOver(n)
		names := numbered("n", 10)
		p.WarmUp()
		w.Eventually("the server has been asked whether it evicts keys", func() bool { return p.Link.Calls("INFO") > 0 })
		warm := takeAll(p, w.Ctx, rwlock.Writes(names...)).granted(w)
		require.NoError(w, warm.Release(w.Ctx)) // the server knows the script of groups
		p.Link.Delay(way)
		for range 3 {
			for _, c := range []struct {
				take  func(context.Context, []rwlock.Want, ...rwlock.LockOption) (*rwlock.MultiLease, error)
				wants []rwlock.Want
				calls int // one for all writes, and one for each read
			}{
				{p.LockAll, rwlock.Writes(names...), 1},
				{p.LockAll, rwlock.Reads(names...), 10},
				{p.LockAll, append(rwlock.Reads(names[5:]...), rwlock.Writes(names[:5]...)...), 6},
				{p.TryLockAll, rwlock.Writes(names...), 1},
				{p.TryLockAll, rwlock.Reads(names...), 10},
				{p.TryLockAll, append(rwlock.Writes(names[5:]...), rwlock.Reads(names[:5]...)...), 6},
			} {
				p.Link.ResetCalls()
				before, begun := written.n.Load(), time.Now()
				all := expect.NoError(c.take(w.Ctx, c.wants)).In(w)
				require.Equal(w, 2*way, time.Since(begun), "one round trip")
				require.Equal(w, int64(1), written.n.Load()-before, "one write")
				require.Equal(w, map[string]int{"EVALSHA": c.calls}, sent(p.Link))
				before, begun = written.n.Load(), time.Now()
				require.NoError(w, all.Release(w.Ctx))
				require.Equal(w, 2*way, time.Since(begun), "one round trip")
				require.Equal(w, int64(1), written.n.Load()-before, "one write")
				require.Equal(w, map[string]int{"EVALSHA": 2 * c.calls}, sent(p.Link))
			}
		}
	})
}

// What another client has refuses several locks in one command, after which nothing is given back. A call that waits
// has taken what comes before, and nothing else.
func TestRefusedSeveralLocksAreOneCommand(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		held := q.Take("m", rwlock.Write)
		wants := rwlock.Writes("z", "m", "a")
		for range 2 { // the server learns the script
			p.Link.ResetCalls()
			err := expect.ErrorOf(p.TryLockAll(w.Ctx, wants))
			refused := testkit.As[*rwlock.AcquireError](w, err)
			require.Equal(w, "m", refused.Name)
			require.Equal(w, held.Owner(), refused.Holder.Owner)
			require.False(w, rwlock.Indeterminate(err))
			w.Settle()
		}
		require.Equal(w, map[string]int{"EVALSHA": 1}, sent(p.Link))
		c := takeAll(p, w.Ctx, wants)
		w.UntilWaiting("m", 1)
		require.Equal(w, []string{"a", "m"}, heldOf(w, "a", "m", "z"))
		require.Equal(w, 4, p.Link.Calls("EVALSHA"), "with one for all, one to queue, and a refresh")
		w.Release(held)
		require.NoError(w, c.granted(w).Release(w.Ctx))
	}))
}

func TestAllocationsOfSeveralLocks(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	locker := testkit.Dial(t, testredis.Start(t).Addr(), rueidis.ClientOption{})
	ctx, wants := t.Context(), rwlock.Writes("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	allocations := testing.AllocsPerRun(100, func() {
		if err := giveBack(locker.LockAll(ctx, wants)); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.1f allocations for each lock", allocations/10)
	require.LessOrEqual(t, allocations, 350.0)
}

// While the call waits it holds only what comes before that lock, in byte order.
func TestNoWaitWithALaterLock(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		names := []string{"d", "c", "b", "a"}
		b, d := q.Take("b", rwlock.Write), q.Take("d", rwlock.Write)
		c := takeAll(p, w.Ctx, rwlock.Writes(names...))
		w.UntilWaiting("b", 1)
		w.Eventually("c is given back", func() bool { return isFree(w, "c") })
		require.Equal(w, []string{"a", "b", "d"}, heldOf(w, "a", "b", "c", "d"))
		w.Release(b)
		w.UntilWaiting("d", 1)
		require.Equal(w, []string{"a", "b", "c", "d"}, heldOf(w, "a", "b", "c", "d"), "c comes before d")
		w.Release(d)
		require.NoError(w, c.granted(w).Release(w.Ctx))

		a := q.Take("a", rwlock.Write)
		c = takeAll(p, w.Ctx, rwlock.Reads(names...)) // which are not one call
		w.UntilWaiting("a", 1)
		for _, name := range names[:3] {
			w.Eventually(name+" is given back", func() bool { return isFree(w, name) })
		}
		w.Release(a)
		require.NoError(w, c.granted(w).Release(w.Ctx))
		require.NoError(w, p.Close())
		require.NoError(w, q.Close())
		w.UntilOnlyTokens()
	}))
}

// What ends a call of several locks while it waits. It holds nothing after that.
func TestNothingIsKeptOfACallThatFails(t *testing.T) {
	t.Parallel() // a loss is noticed by a renewal
	names := []string{"a", "b", "c"}
	type waiting struct {
		w      *world
		p      *process
		cancel context.CancelCauseFunc
		call   *together
	}
	errEnough := errors.New("enough")
	type failure struct {
		opts  []rwlock.LockOption // with a limit of time, which only fake time keeps
		end   func(x *waiting)
		fails func(x *waiting, err error)
	}
	with := func(opts ...rwlock.LockOption) []rwlock.LockOption { return opts }
	passes := func(*waiting) {}
	loses := func(reason rwlock.Reason) func(x *waiting, err error) {
		return func(x *waiting, err error) { require.Equal(x.w, reason, x.w.Loss(err).Reason) }
	}
	testkit.Each(t, map[string]failure{
		"the end of ctx": {nil, func(x *waiting) { x.cancel(errEnough) }, func(x *waiting, err error) {
			require.Equal(x.w, "b", testkit.As[*rwlock.AcquireError](x.w, err).Name)
			expect.Fails(x.w, err, errEnough, context.Canceled)
		}},
		"WithMaxWait": {with(rwlock.WithMaxWait(time.Second)), passes, func(x *waiting, err error) {
			require.ErrorContains(x.w, err, "WithMaxWait limit of 1s reached")
			require.GreaterOrEqual(x.w, testkit.As[*rwlock.AcquireError](x.w, err).Waited, time.Second)
		}},
		"WithMaxWait and a minimum": {
			with(rwlock.WithMaxWait(time.Second), rwlock.WithMinHold(time.Hour)), passes,
			func(x *waiting, err error) { require.ErrorIs(x.w, err, rwlock.ErrNotAcquired) },
		},
		"Close": {nil, func(x *waiting) { require.NoError(x.w, x.p.Close()) }, func(x *waiting, err error) {
			require.ErrorIs(x.w, err, rwlock.ErrClosed)
		}},
		"the loss of a lock before": {nil, func(x *waiting) {
			for _, key := range x.w.LockKeys() {
				if strings.Contains(key, "{a}") {
					x.w.Command("DEL", key)
				}
			}
		}, func(x *waiting, err error) {
			lost := x.w.Loss(err)
			require.Equal(x.w, "a", lost.Name)
			require.Equal(x.w, rwlock.ReasonGone, lost.Reason)
			require.NotErrorIs(x.w, err, rwlock.ErrNotAcquired)
		}},
		"a lock before that is not renewed": {
			with(rwlock.WithoutRenewal(), rwlock.WithTTL(time.Second)), passes, loses(rwlock.ReasonExpired),
		},
		"WithMaxHold of a lock before": {with(rwlock.WithMaxHold(time.Second)), passes, loses(rwlock.ReasonMaxHold)},
	}, func(t *testing.T, c failure) {
		in := everywhere
		if len(c.opts) > 0 {
			in = inFakeTime
		}
		in(t, func(w *world) {
			p, q := w.Process(), w.Process()
			held := q.Take("b", rwlock.Write)
			ctx, cancel := context.WithCancelCause(w.Ctx)
			defer cancel(nil)
			x := &waiting{w, p, cancel, takeAll(p, ctx, rwlock.Writes(names...), c.opts...)}
			w.UntilWaiting("b", 1)
			w.Eventually("the process knows that it waits", func() bool { return p.Stats().Waiting == 1 })
			c.end(x)
			c.fails(x, x.call.failed(w))
			for _, name := range []string{"a", "c"} {
				w.Eventually(name+" is free", func() bool { return isFree(w, name) })
			}
			w.Eventually("none waits", func() bool { return len(w.Inspect("b").Waiters) == 0 })
			require.Zero(w, p.Stats().Held+p.Stats().Waiting)
			w.Release(held)
			require.NoError(w, p.Close())
			require.NoError(w, q.Close())
			w.UntilOnlyTokens()
		})
	})
}

// A caller that holds a later lock does not wait for an earlier one: who holds that may wait for the later one.
func TestNestedWaitsKeepTheOrder(t *testing.T) {
	inFakeTime(t, func(w *world) {
		nestedWaitsKeepTheOrder(w, rwlock.Write)
		nestedWaitsKeepTheOrder(w, rwlock.Read)
	})
}

func nestedWaitsKeepTheOrder(w *world, outside rwlock.Mode) {
	p, q := w.Process(), w.Process()
	outer := p.Take("m", outside)
	ctx := outer.Context(w.Ctx)
	earlier := [][]rwlock.Want{
		rwlock.Writes("a"), rwlock.Writes("a", "z"),
		rwlock.Reads("a"), append(rwlock.Reads("a"), rwlock.Writes("z")...),
	}
	for _, wants := range earlier {
		require.NoError(w, giveBack(p.LockAll(ctx, wants)), "it need not wait")
	}

	held := q.Take("a", rwlock.Write)
	for _, wants := range earlier {
		err := expect.ErrorOf(p.LockAll(ctx, wants, rwlock.WithMaxWait(time.Second)))
		expect.Fails(w, err, rwlock.ErrLockOrder, `lock "a" is not free, and the section that ctx comes from holds lock "m"`)
	}
	w.Eventually("z is given back", func() bool { return isFree(w, "z") })
	w.Release(held)

	later := q.Take("z", rwlock.Write)
	c := takeAll(p, ctx, append(rwlock.Reads("z"), rwlock.Writes("a")...))
	w.UntilWaiting("z", 1)
	w.Release(later)
	require.NoError(w, c.granted(w).Release(w.Ctx), "z comes later than m")

	for _, wants := range [][]rwlock.Want{
		rwlock.Writes("m"), rwlock.Writes("a", "m"), append(rwlock.Reads("z"), rwlock.Writes("m")...),
	} {
		require.ErrorIs(w, expect.ErrorOf(p.LockAll(ctx, wants)), rwlock.ErrNested)
		require.ErrorIs(w, expect.ErrorOf(p.TryLockAll(ctx, wants)), rwlock.ErrNotAcquired)
		require.ErrorIs(w, expect.ErrorOf(p.LockAll(ctx, append(rwlock.Writes("a"), rwlock.Reads("m")...))), rwlock.ErrNested)
	}
	w.Release(outer)
	held = q.Take("a", rwlock.Write)
	c = takeAll(p, context.WithoutCancel(ctx), rwlock.Writes("a", "z"))
	w.UntilWaiting("a", 1)
	w.Release(held)
	require.NoError(w, c.granted(w).Release(w.Ctx), "the section is over")
}

func TestSeveralLocksRefuse(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithTTL(time.Second))
		many := numbered("", 1001)
		fn := func(context.Context) error { return nil }
		for _, c := range []struct {
			wants               []rwlock.Want
			options             []rwlock.LockOption
			option, value, rule string
		}{
			{nil, nil, "wants", "0", "must be 1 to 1000"},
			{rwlock.Reads(many...), nil, "wants", "1001", "must be 1 to 1000"},
			{rwlock.Writes("a", "b", "a"), nil, "wants", `"a"`, "must not occur twice"},
			{append(rwlock.Reads("a"), rwlock.Writes("b", "a")...), nil, "wants", `"a"`, "must not occur twice"},
			{[]rwlock.Want{{Name: "b", Mode: rwlock.Read}, {Name: "a"}}, nil, "mode", "none", `read or write, of lock "a"`},
			{[]rwlock.Want{{Name: "a", Mode: 3}}, nil, "mode", "Mode(3)", `must be read or write, of lock "a"`},
			{rwlock.Writes("a", ""), nil, "name", "0 bytes", "must be 1 to 512 bytes"},
			{rwlock.Writes("a", "\xff"), nil, "name", `"\xff"`, "must be valid UTF-8"},
			{rwlock.Writes("a", strings.Repeat("n", 513)), nil, "name", "513 bytes", "must be 1 to 512 bytes"},
			{rwlock.Writes("a"), []rwlock.LockOption{nil}, "option", "nil", "must not be nil"},
			{rwlock.Writes("a"), []rwlock.LockOption{rwlock.WithTTL(time.Millisecond)}, "WithTTL", "1ms", "100ms"},
		} {
			for _, take := range []func(context.Context, []rwlock.Want, ...rwlock.LockOption) (*rwlock.MultiLease, error){
				p.LockAll, p.TryLockAll,
				func(ctx context.Context, wants []rwlock.Want, opts ...rwlock.LockOption) (*rwlock.MultiLease, error) {
					return nil, p.DoAll(ctx, wants, fn, opts...)
				},
			} {
				refusedOption(w.T, expect.ErrorOf(take(w.Ctx, c.wants, c.options...)), c.option, c.value, c.rule)
			}
		}
		refusedOption(w.T, p.DoAll(w.Ctx, rwlock.Writes("a"), nil), "fn", "nil", "must be a function")
		require.Zero(w, p.Link.Calls("EVAL")+p.Link.Calls("EVALSHA"), "nothing was sent")
		require.NoError(w, (*rwlock.MultiLease)(nil).Release(w.Ctx))
	})
}

// The context ends with the first loss, and DoAll reports each once.
func TestLossUnderSeveralLocks(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		wants := append(rwlock.Writes("a", "c"), rwlock.Reads("b")...)
		err := p.DoAll(w.Ctx, wants, func(ctx context.Context) error {
			w.Command("DEL", slices.DeleteFunc(w.LockKeys(), func(key string) bool { return !strings.Contains(key, "{b}") })[0])
			w.UntilClosed(ctx.Done())
			require.Equal(w, "b", w.Loss(context.Cause(ctx)).Name)
			return context.Cause(ctx)
		})
		require.Equal(w, "b", w.Loss(err).Name)
		require.Equal(w, 1, strings.Count(err.Error(), "lost"), err)
		require.False(w, rwlock.Completed(err))

		err = p.DoAll(w.Ctx, wants, func(context.Context) error {
			for _, key := range w.LockKeys() {
				w.Command("DEL", key)
			}
			return nil
		})
		require.True(w, rwlock.Completed(err))
		require.Equal(w, 3, strings.Count(err.Error(), "lost"), err)
		require.ErrorContains(w, err, `"c"`)
		w.OnlyTokensLeft()
		require.NoError(w, p.DoAll(w.Ctx, rwlock.Reads("a"), func(context.Context) error { return nil }))
		require.Panics(w, func() {
			_ = p.DoAll(w.Ctx, rwlock.Writes("a", "b"), func(context.Context) error { panic("in the work") })
		})
		require.True(w, isFree(w, "a") && isFree(w, "b"))
	}))
}

// steppedContext calls at once in the given call of its methods.
type steppedContext struct {
	context.Context
	calls atomic.Int64
	at    int64
	call  func()
}

func (c *steppedContext) step() {
	if c.calls.Add(1) == c.at {
		c.call()
	}
}

func (c *steppedContext) Err() error {
	c.step()
	return c.Context.Err()
}

func (c *steppedContext) Done() <-chan struct{} {
	c.step()
	return c.Context.Done()
}

func (c *steppedContext) Value(key any) any {
	c.step()
	return c.Context.Value(key)
}

var errStep = errors.New("at this step")

// Whatever happens at whatever step of a call that takes several locks, it has all of them or keeps none.
func TestSeveralLocksAtEveryStep(t *testing.T) {
	names := []string{"c", "a", "b"}
	for _, c := range []struct {
		name string
		call func(p *process, cancel context.CancelCauseFunc)
		err  error
	}{
		{"panic", func(*process, context.CancelCauseFunc) { panic(errStep) }, errStep},
		{"end of ctx", func(_ *process, cancel context.CancelCauseFunc) { cancel(errStep) }, errStep},
		{"Close", func(p *process, _ context.CancelCauseFunc) { _ = p.Close() }, rwlock.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, taken := range testredis.Few([]string{"b"}, []string{"b", "", "a", "c"}) {
				for step, reached := int64(1), true; reached; step += testredis.Few[int64](3, 1) {
					inFakeTime(t, func(w *world) {
						w.Net.Way = time.Millisecond
						p, q := w.Process(), w.Process()
						p.WarmUp()
						ctx, cancel := context.WithCancelCause(w.Ctx)
						defer cancel(nil)
						stepped := &steppedContext{Context: ctx, at: step, call: func() { c.call(p, cancel) }}
						if taken != "" {
							held := q.Take(taken, rwlock.Write)
							time.AfterFunc(50*time.Millisecond, func() { _ = held.Release(context.Background()) })
						}
						all, err := lockAllOrPanic(p, stepped, names)
						reached = stepped.calls.Load() >= step
						switch {
						case err == nil:
							_ = all.Release(w.Ctx) // nothing is left of it after Close
						case reached:
							require.ErrorIs(w, err, c.err, "step %d", step)
						default:
							require.NoError(w, err, "step %d", step)
						}
						w.Pass(100 * time.Millisecond)
						require.Zero(w, p.Stats().Held+p.Stats().Waiting, "step %d", step)
						for _, name := range names {
							require.True(w, isFree(w, name), "%q, held after step %d, with %q taken", name, step, taken)
						}
						require.NoError(w, p.Close())
					})
				}
			}
		})
	}
}

// lockAllOrPanic returns a panic as an error.
func lockAllOrPanic(p *process, ctx context.Context, names []string) (all *rwlock.MultiLease, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %w", panicked.(error))
		}
	}()
	return p.LockAll(ctx, rwlock.Writes(names...))
}

// The attempts of a call that it gives back were never acquired: each lock has one event of its call.
func TestAttemptsThatAreGivenBackAreNotReported(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var trace testkit.Trace
		p, q := w.Process(trace.Option()), w.Process()
		p.WarmUp()
		w.Settle()
		acquired, events := p.Stats().Acquired, len(trace.Events())
		held := q.Take("b", rwlock.Write)
		for range 3 {
			require.ErrorIs(w, expect.ErrorOf(p.TryLockAll(w.Ctx, rwlock.Writes("a", "b", "c"))), rwlock.ErrNotAcquired)
		}
		w.Settle()
		require.Equal(w, acquired, p.Stats().Acquired)
		require.Zero(w, p.Stats().Lost)
		require.Len(w, trace.Events(), events+3*3)
		for _, e := range trace.Events()[events:] {
			require.Equal(w, "failed", e.What, "once for each lock and call")
		}
		events += 3 * 3

		c := takeAll(p, w.Ctx, rwlock.Writes("a", "b", "c"))
		w.UntilWaiting("b", 1)
		w.Release(held)
		all := c.granted(w)
		require.Equal(w, acquired+3, p.Stats().Acquired)
		require.Equal(w, uint64(1), p.Stats().Contended)
		require.NoError(w, all.Release(w.Ctx))
		w.Settle()
		kinds := map[string]int{}
		for _, e := range trace.Events()[events:] {
			kinds[e.Name+" "+e.What]++
		}
		require.Equal(w, map[string]int{
			"a acquired": 1, "b waiting": 1, "b acquired": 1, "c acquired": 1,
			"a released": 1, "b released": 1, "c released": 1,
		}, kinds)
	})
}

// A lock that ends while the call asks for the rest ends the call: it never returns a lease that is over.
func TestNoCallReturnsALostLock(t *testing.T) {
	t.Parallel() // it computes while others wait
	const way, limit = 50 * time.Millisecond, time.Second
	outcomes := map[bool]int{}
	for freed := limit - 6*way; freed < limit+2*way; freed += way / 5 {
		inFakeTime(t, func(w *world) {
			p, q := w.ProcessAt(way), w.Process()
			p.WarmUp()
			warm := takeAll(p, w.Ctx, rwlock.Writes("a", "b", "c", "d")).granted(w) // the server knows the script of groups
			require.NoError(w, warm.Release(w.Ctx))
			w.Pass(time.Second)
			held := q.Take("b", rwlock.Write)
			begun := time.Now()
			c := takeAll(p, w.Ctx, rwlock.Writes("a", "b", "c", "d"), rwlock.WithMaxHold(limit))
			time.Sleep(2*way + freed) // since a was granted
			w.Release(held)
			err := c.Result()
			outcomes[err == nil]++
			if err != nil {
				require.Equal(w, "a", w.Loss(err).Name)
				return
			}
			require.Less(w, c.At.Sub(begun), 2*way+limit, "the first lease is over")
		})
	}
	require.Len(t, outcomes, 2, "some were in time")
}

// A single attempt does not wait until a Redis that has just not answered is tried again, for several locks as for one.
func TestTryAllOfARedisThatDoesNotAnswer(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.WarmUp()
		w.Settle()
		w.Mini.Freeze()
		require.ErrorIs(w, expect.ErrorOf(p.TryLock(w.Ctx, "a")), rwlock.ErrNoQuorum)
		begun := time.Now()
		err := expect.ErrorOf(p.TryLockAll(w.Ctx, rwlock.Writes("a", "b")))
		expect.Fails(w, err, rwlock.ErrNoQuorum, "failed a moment ago")
		require.Zero(w, time.Since(begun))
		w.Mini.Thaw()
		w.Pass(time.Second)
		require.NoError(w, giveBack(p.TryLockAll(w.Ctx, rwlock.Writes("a", "b"))))
	}))
}

// Eight processes of eight goroutines take random subsets of six locks: every wait ends, and each lock has one writer.
func TestCrowdsTakeSeveralLocks(t *testing.T) {
	for seed := range testredis.Few(1, 2) {
		subtestInFakeTime(t, fmt.Sprint("fake time, seed ", seed), func(w *world) {
			w.Net.Way = time.Millisecond
			(&testkit.ManyCrowd{
				Processes: 8, Goroutines: 8, Seed: uint64(seed), Lasts: time.Second / 4, Work: 10 * time.Millisecond,
			}).Run(w)
		})
	}
}
