package rwlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// refusedOption checks that err names the option or argument, its value and its rule.
func refusedOption(t *testing.T, err error, option, value, rule string) {
	t.Helper()
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.Equal(t, option, testkit.As[*rwlock.OptionError](t, err).Option)
	for _, part := range []string{"rwlock: ", option, value, rule} {
		require.ErrorContains(t, err, part)
	}
}

func TestNewRefuses(t *testing.T) {
	inFakeTime(t, func(w *world) {
		client := w.NewLink().Client(w.T)
		with := func(opts ...rwlock.Option) []rwlock.Option { return opts }
		refusedOption(w.T, expect.ErrorOf(rwlock.New(nil)), "client", "nil", "must be a client")
		for _, c := range []struct {
			options             []rwlock.Option
			option, value, rule string
		}{
			{with(nil), "option", "nil", "must not be nil"},
			{with(rwlock.WithTTL(99 * time.Millisecond)), "WithTTL", "99ms", "100ms"},
			{with(rwlock.WithTTL(0)), "WithTTL", "0s", "100ms"},
			{with(rwlock.WithTTL(-time.Second)), "WithTTL", "-1s", "100ms"},
			{with(rwlock.WithTTL(25 * time.Hour)), "WithTTL", "25h", "24h"},
			{with(rwlock.WithReplicas(-1, time.Second)), "WithReplicas", "-1", "must not be negative"},
			{with(rwlock.WithReplicas(1, 0)), "WithReplicas", "0s", "1ms to 3s"},
			{
				with(rwlock.WithTTL(time.Second), rwlock.WithReplicas(1, time.Second)),
				"WithReplicas", "1s", "a third of the TTL of 1s",
			},
			{with(rwlock.WithPrefix("")), "WithPrefix", `""`, "1 to 128 bytes"},
			{with(rwlock.WithPrefix(strings.Repeat("p", 129))), "WithPrefix", "ppp", "1 to 128 bytes"},
			{with(rwlock.WithPrefix("a{b}")), "WithPrefix", "a{b}", "without white space and braces"},
			{with(rwlock.WithPrefix("a\tb")), "WithPrefix", `a\tb`, "white space"},
			{with(rwlock.WithPrefix("a\vb")), "WithPrefix", `a\vb`, "white space"},
			{with(rwlock.WithPrefix("a\fb")), "WithPrefix", `a\fb`, "white space"},
			{with(rwlock.WithTrace(nil)), "WithTrace", "nil", "must be a trace"},
			{with(redlock.WithNodeTimeout(time.Second)), "WithNodeTimeout", "1s", "redlock.New"},
			{with(redlock.WithQuarantine(time.Hour)), "WithQuarantine", "1h0m0s", "redlock.New"},
			{with(rwlock.WithLogger(nil)), "WithLogger", "nil", "must be a logger"},
			{with(rwlock.WithReleaseTimeout(0)), "WithReleaseTimeout", "", "must be positive"},
			{with(rwlock.WithMaxWait(0)), "WithMaxWait", "", "must be positive"},
			{with(rwlock.WithMaxHold(-time.Second)), "WithMaxHold", "-1s", "must be positive"},
			{with(rwlock.WithMinHold(0)), "WithMinHold", "0s", "must be positive"},
			{with(rwlock.WithMeta(strings.Repeat("m", 257))), "WithMeta", "257 bytes", "256 bytes"},
			{
				with(rwlock.WithTTL(time.Second), rwlock.WithoutRenewal(), rwlock.WithMaxHold(time.Minute)),
				"WithMaxHold", "1m0s", "cannot be reached WithoutRenewal",
			},
		} {
			refusedOption(w.T, expect.ErrorOf(rwlock.New(client, c.options...)), c.option, c.value, c.rule)
		}
	})
}

// What New takes as a default, an acquisition takes for itself, under the same rules and before anything is sent.
func TestAcquisitionRefuses(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithTTL(time.Second))
		with := func(opts ...rwlock.LockOption) []rwlock.LockOption { return opts }
		for _, c := range []struct {
			lock                string
			options             []rwlock.LockOption
			option, value, rule string
		}{
			{"orders", with(nil), "option", "nil", "must not be nil"},
			{"orders", with(rwlock.WithTTL(time.Millisecond)), "WithTTL", "1ms", "100ms"},
			{"orders", with(rwlock.WithMeta(strings.Repeat("m", 300))), "WithMeta", "300 bytes", "256 bytes"},
			{"orders", with(rwlock.WithMaxWait(-1)), "WithMaxWait", "-1ns", "must be positive"},
			{
				"orders", with(rwlock.WithMaxHold(time.Hour), rwlock.WithoutRenewal()),
				"WithMaxHold", "1h0m0s", "cannot be reached WithoutRenewal",
			},
			{"orders", with(rwlock.WithMinHold(24*time.Hour + 1)), "WithMinHold", "24h0m0.000000001s", "at most 24h"},
			{"", nil, "name", "0 bytes", "1 to 512 bytes"},
			{strings.Repeat("n", 513), nil, "name", "513 bytes", "1 to 512 bytes"},
			{"a\xff", nil, "name", `"a\xff"`, "valid UTF-8"},
		} {
			for _, take := range acquisitions(p.Locker) {
				refusedOption(w.T, expect.ErrorOf(take(w.Ctx, c.lock, c.options...)), c.option, c.value, c.rule)
			}
			err := p.Do(w.Ctx, c.lock, func(context.Context) error { panic("entered") }, c.options...)
			refusedOption(w.T, err, c.option, c.value, c.rule)
			err = expect.ErrorOf(p.TryDo(w.Ctx, c.lock, func(context.Context) error { panic("entered") }, c.options...))
			refusedOption(w.T, err, c.option, c.value, c.rule)
			mutexOptions := make([]rwlock.MutexOption, len(c.options))
			for i, option := range c.options {
				mutexOptions[i] = option
			}
			refusedOption(w.T, p.RWMutex(c.lock, mutexOptions...).RLock(w.Ctx), c.option, c.value, c.rule)
		}
		refusedOption(w.T, expect.ErrorOf(p.Inspect(w.Ctx, "")), "name", "0 bytes", "1 to 512 bytes")
		require.Zero(w, p.Link.Calls("EVALSHA")+p.Link.Calls("EVAL"), "something was sent")
		require.Empty(w, w.Keys())
	})
}

// A URL's time limit is positive: with another one no connection would ever be made.
func TestTimeLimitsOfAURL(t *testing.T) {
	for _, limit := range []string{"dial_timeout=-2s", "dial_timeout=0s", "write_timeout=0", "write_timeout=soon"} {
		name, _, _ := strings.Cut(limit, "=")
		refusedOption(t, expect.ErrorOf(rwlock.Open("redis://127.0.0.1:1?"+limit)), "Open", "addr",
			name+" of a URL must be a positive duration, such as 2s")
	}
}

// The limits themselves are allowed.
func TestLimitsAreAllowed(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithPrefix(strings.Repeat("p", 128)), rwlock.WithMeta(strings.Repeat("m", 256)),
			rwlock.WithLogger(slog.New(slog.DiscardHandler)), rwlock.WithReleaseTimeout(testkit.Patience))
		for _, name := range []string{"n", strings.Repeat("n", 512)} {
			lease := p.Take(name, rwlock.Write, rwlock.WithTTL(24*time.Hour), rwlock.WithMaxWait(testkit.Patience),
				rwlock.WithMaxHold(time.Hour), rwlock.WithoutRenewal())
			s := expect.NoError(p.Inspect(w.Ctx, name)).In(w)
			require.Len(w, s.Holders, 1)
			require.Equal(w, strings.Repeat("m", 256), s.Holders[0].Meta)
			w.Release(lease)
		}
		w.Release(p.Take("short", rwlock.Write, rwlock.WithTTL(100*time.Millisecond), rwlock.WithMeta("")))
		w.OnlyTokensLeft()
	})
}

// trickyPrefixes are some that New takes, and that are no text or have a meaning somewhere.
var trickyPrefixes = []string{
	"a\x00b", "a\x1fb", "a\x7fb", "a\x85b", "a\xa0b", "a\u00a0b", "a\xffb", "*", "a?b", "[a]", "a%b", "%d", "a\"b", "a'b",
	"\\", "a:b", "a:c:b", "^", "~", "+", "-", "名前", strings.Repeat("p", 128),
}

// A prefix is part of the channel that a hand-off is sent to, which scripts read from a text.
func TestHandOffsUnderAnyPrefix(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, prefix := range trickyPrefixes {
			p, q := w.Process(rwlock.WithPrefix(prefix)), w.Process(rwlock.WithPrefix(prefix))
			held := p.Take("n", rwlock.Write)
			waiting := q.Acquire(w.Ctx, "n", rwlock.Write)
			w.Eventually("it waits", func() bool {
				s, err := p.Inspect(w.Ctx, "n")
				return err == nil && len(s.Waiters) == 1
			})
			w.Settle() // its subscription
			released := time.Now()
			w.Release(waiting.GrantedAfter(held))
			w.RequireLess(waiting.At.Sub(released), time.Millisecond, prefix)
		}
	})
}

// To use what this package has not made is a fault of the program. Release of a nil lease is none.
func TestZeroValuesPanic(t *testing.T) {
	ctx, nothing := t.Context(), func(context.Context) error { return nil }
	locker, lease, mutex := new(rwlock.Locker), new(rwlock.Lease), new(rwlock.RWMutex)
	all := new(rwlock.MultiLease)
	for want, uses := range map[string][]func(){
		"rwlock: a Locker is made by New or Open": {
			func() { _, _ = locker.Lock(ctx, "n") },
			func() { _, _ = locker.TryRLock(ctx, "n", rwlock.WithTTL(time.Minute)) },
			func() { _ = locker.Do(ctx, "n", nothing) },
			func() { _, _ = locker.Adopt(ctx, rwlock.Ticket{Version: 1}) },
			func() { locker.RWMutex("n") },
			func() { _, _ = locker.LockAll(ctx, rwlock.Writes("a")) },
			func() { _, _ = locker.Inspect(ctx, "n") },
			func() { locker.List(ctx, "")(func(rwlock.State, error) bool { panic("a lock") }) },
			func() { _ = locker.Break(ctx, "n", "hold", "why") },
			func() { locker.Leases()(func(rwlock.LeaseState) bool { panic("a lease") }) },
			func() { locker.Losses() }, func() { locker.Stats() }, func() { _ = locker.Ping(ctx) },
			func() { _ = locker.Close() },
		},
		"rwlock: a Lease is made by a Locker": {
			func() { _ = lease.String() }, func() { lease.Name() }, func() { lease.Mode() }, func() { lease.Owner() },
			func() { lease.Token() }, func() { lease.Fence() }, func() { lease.Context(ctx) }, func() { lease.Done() },
			func() { _ = lease.Err() }, func() { lease.Deadline() }, func() { _ = lease.Renew(ctx) },
			func() { _ = lease.SetTTL(ctx, time.Second) }, func() { _, _ = lease.Detach(ctx, rwlock.WithTTL(time.Second)) },
			func() { _ = lease.Release(ctx) }, func() { _ = lease.Upgrade(ctx) }, func() { _ = lease.Downgrade(ctx) },
		},
		"rwlock: a MultiLease is made by a Locker": {
			func() { all.Leases() }, func() { all.Context(ctx) }, func() { all.Done() }, func() { _ = all.Err() },
			func() { _ = all.Release(ctx) },
		},
		"rwlock: an RWMutex is made by Locker.RWMutex": {
			func() { _ = mutex.Lock(ctx) }, func() { _ = mutex.TryRLock(ctx) }, func() { _ = mutex.Unlock(ctx) },
			func() { _ = mutex.RDo(ctx, nothing) }, func() { _ = mutex.Upgrade(ctx) },
		},
	} {
		for i, use := range uses {
			require.PanicsWithValue(t, want, use, "number %d", i)
		}
	}
	require.NoError(t, (*rwlock.Lease)(nil).Release(ctx))
	require.Zero(t, mutex.Token())
	require.ErrorIs(t, context.Cause(mutex.Context(ctx)), rwlock.ErrNotHeld)
}

// An error that was not filled has a text too.
func TestEmptyErrorsHaveATextOfTheirOwn(t *testing.T) {
	for _, err := range []error{
		new(rwlock.AcquireError), new(rwlock.QuorumError), new(rwlock.NodeError), new(rwlock.NoReplyError),
		new(rwlock.ReplicasError), new(rwlock.AbstainError), new(rwlock.LostError), new(rwlock.OptionError),
	} {
		require.NotEmpty(t, err.Error())
	}
}

// panickyContext is a caller's context whose methods panic from the given call on.
type panickyContext struct {
	context.Context
	left atomic.Int64
}

func (c *panickyContext) count() {
	if c.left.Add(-1) < 0 {
		panic("the caller's context")
	}
}

func (c *panickyContext) Done() <-chan struct{} {
	c.count()
	return c.Context.Done()
}

func (c *panickyContext) Err() error {
	c.count()
	return c.Context.Err()
}

// A goroutine whose context panics while it leads leaves the queue: the RWMutex serves those after it.
func TestAPanicOfAContextLeavesAnRWMutexUsable(t *testing.T) {
	eachInFakeTime(t, map[string]ofMutex{
		"RLock": (*rwlock.RWMutex).RLock, "TryRLock": (*rwlock.RWMutex).TryRLock,
	}, func(w *world, lock ofMutex) {
		m, panics := w.Process().RWMutex("n"), 0
		for calls, over := int64(0), false; !over; calls++ {
			func() {
				defer func() {
					if recover() != nil {
						panics++
					}
				}()
				ctx := &panickyContext{Context: w.Ctx}
				ctx.left.Store(calls)
				require.NoError(w, lock(m, ctx))
				require.NoError(w, m.RUnlock(w.Ctx))
				over = true
			}()
			require.NoError(w, m.Lock(w.Soon(w.TTL/2)), "after %d calls", calls)
			require.NoError(w, m.Unlock(w.Ctx))
		}
		require.Greater(w, panics, 2)
	})
}

// An acquisition whose context panics leaves no hold and no waiter, wherever it is by then.
func TestAPanicOfAContextLeavesNoAcquisition(t *testing.T) {
	for _, masters := range []int{1, 3} {
		for name, held := range map[string]bool{"free": false, "held": true} {
			t.Run(fmt.Sprintf("%s, %d masters", name, masters), func(t *testing.T) {
				testkit.InFakeTime(t, masters, func(w *world) {
					other, p, panics := w.Process(), w.Process(), 0
					for calls := int64(0); ; calls++ {
						if held {
							lease := expect.NoError(other.Lock(w.Ctx, "n")).In(w)
							time.AfterFunc(w.TTL/4, func() { assert.NoError(w, lease.Release(w.Ctx)) })
						}
						returned := lockWithin(w, p, w.TTL/8, calls)
						w.Pass(w.TTL)
						require.Zero(w, p.Stats().Held, "after %d calls", calls)
						require.Zero(w, p.Stats().Waiting, "after %d calls", calls)
						require.NoError(w, giveBack(other.TryLock(w.Ctx, "n")), "after %d calls", calls)
						if returned {
							break
						}
						panics++
					}
					require.Positive(w, panics)
				})
			})
		}
	}
}

// lockWithin locks and releases "n", with a context that ends after d, and reports whether it did not panic.
func lockWithin(w *world, p *testkit.Process, d time.Duration, calls int64) (returned bool) {
	ctx := &panickyContext{Context: w.Soon(d)}
	ctx.left.Store(calls)
	defer func() { returned = recover() == nil }()
	if err := giveBack(p.Lock(ctx, "n")); err != nil {
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	}
	return true
}

// A counter beyond all tokens is found by whoever is granted one: at once, by a hand-off or by a refresh.
func TestACounterPastAllTokensIsAConflict(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
		for _, counter := range []string{"9007199254740991", "9007199254740992", "9223372036854775807"} {
			for how, take := range acquisitions(p.Locker) {
				w.Settle() // what the last one was granted is given back
				w.FlushAll()
				w.Command("HSET", "fencelock:{orders}", "w", testkit.CounterIn("", counter))
				_, err := take(w.Ctx, "orders")
				require.ErrorIs(w, err, rwlock.ErrConflict, how)
				if len(counter) == len("9007199254740991") {
					require.ErrorContains(w, err, "past the largest token")
				}
			}
			w.FlushAll()
			held := p.Take("orders", rwlock.Write)
			waiting := q.Queue("orders", rwlock.Write, rwlock.WithMaxWait(testkit.Patience))
			before := w.Command("HGET", "fencelock:{orders}", "w").(string)
			w.Command("HSET", "fencelock:{orders}", "w", testkit.CounterIn(before, counter))
			_ = held.Release(w.Ctx) // its token is not the counter's
			require.ErrorIs(w, waiting.Failed(), rwlock.ErrConflict)
		}
	}))
}
