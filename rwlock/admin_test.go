package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// requireBroken checks the cause of a lease or of a wait that an operator has ended.
func requireBroken(w *world, err error, why string) {
	w.Helper()
	require.Equal(w, &rwlock.BrokenError{By: "operator", Why: why}, testkit.As[*rwlock.BrokenError](w, err, "%v", err))
}

func operator(w *world) *process { return w.Process(rwlock.WithMeta("operator")) }

// breaks starts a Break.
func breaks(w *world, p *process, name, hold, why string, opts ...rwlock.BreakOption) *testkit.Call {
	return w.Call(w.Ctx, func(ctx context.Context) error { return p.Break(ctx, name, hold, why, opts...) })
}

// A hold that is broken stands until its process has heard of it, and the lock goes to the next waiter then.
func breakEndsALease(w *world) {
	holder, waiter, op := w.Process(), w.Process(), operator(w)
	why := strings.Repeat("y", 256) // as long as it may be
	for _, mode := range bothModes {
		lease := holder.Take("n", mode)
		next := waiter.Queue("n", rwlock.Write)
		hold := w.Inspect("n").Holders[0].Hold
		require.NoError(w, op.Break(w.Ctx, "n", hold, why))
		lost := w.Loss(lease.Err())
		require.Equal(w, rwlock.ReasonBroken, lost.Reason)
		require.Zero(w, lost.Limit)
		requireBroken(w, lost, why)
		require.ErrorContains(w, lost, `lost: broken: broken by "operator": "`+why+`"`)
		granted := next.Granted()
		require.Greater(w, granted.Token(), lease.Token())
		require.ErrorIs(w, op.Break(w.Ctx, "n", hold, why), rwlock.ErrNotHeld)
		w.Release(granted)
	}
	require.Equal(w, rwlock.LostStats{Broken: 2}, holder.Stats().Lost)
	require.EqualValues(w, 2, holder.Stats().Lost.Total())
	if w.Mini == nil { // a minute is long
		w.OnlyTombstonesLeft(time.Minute)
		return
	}
	w.UntilOnlyTokens()
}

// A process that does not renew keeps the lock until its time is over, as it was promised.
func breakWaitsForTheExpiry(w *world) {
	holder, waiter, op := w.Process(), w.Process(), operator(w)
	lease := holder.Take("n", rwlock.Write)
	ended := watch(lease)
	next := waiter.Queue("n", rwlock.Read)
	hold := expect.NoError(op.Inspect(w.Ctx, "n")).In(w).Holders[0].Hold
	require.NoError(w, lease.SetTTL(w.Ctx, w.TTL*2/5)) // just before: on a busy machine it must stand until the break
	holder.Die()
	begun, deadline := time.Now(), lease.Deadline()
	require.NoError(w, op.Break(w.Ctx, "n", hold, "dead"))
	w.UntilOver(lease)
	w.Release(next.Granted())
	require.False(w, next.At.Before(deadline), "the next came in while the first was trusted")
	require.True(w, ended.before(time.Now()))
	require.Less(w, time.Since(begun), w.TTL+testkit.Patience)
	holder.Restore(0) // Close gives back what is lost, too
}

// A waiter that is broken leaves the queue, and the others move up.
func breakEndsAWait(w *world) {
	holder, waiter, op := w.Process(), w.Process(), operator(w)
	lease := holder.Take("n", rwlock.Write)
	first := waiter.Queue("n", rwlock.Write)
	hold := w.Inspect("n").Waiters[0].Hold
	second := waiter.Queue("n", rwlock.Read)
	require.NoError(w, op.Break(w.Ctx, "n", hold, "wrong version"))
	err := first.Failed()
	require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	requireBroken(w, err, "wrong version")
	require.NoError(w, lease.Err())
	w.Release(second.GrantedAfter(lease))
	if w.Mini != nil { // a late request of the waiter finds a tombstone for a minute
		w.UntilOnlyTokens()
	}
}

// BreakNow frees the lock although its holder knows nothing of it; the token of the next holder is larger.
func breakNowFreesAtOnce(w *world) {
	holder, next, op := w.Process(), w.Process(), operator(w)
	lease := holder.Take("n", rwlock.Write)
	holder.Die()
	require.NoError(w, op.Break(w.Ctx, "n", w.Inspect("n").Holders[0].Hold, "stuck", rwlock.BreakNow()))
	later := expect.NoError(next.TryLock(w.Ctx, "n")).In(w)
	require.Greater(w, later.Token(), lease.Token())
	w.Release(later)
	holder.Restore(0)
}

func TestBreakWaitsForTheExpiryOfADeadProcess(t *testing.T) { everywhere(t, breakWaitsForTheExpiry) }

func TestBreakRefuses(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		hold := w.Inspect("n").Holders[0].Hold
		refused := func(err error, option, value, rule string) { refusedOption(w.T, err, option, value, rule) }
		refused(p.Break(w.Ctx, "", hold, "why"), "name", "0 bytes", "1 to 512")
		refused(p.Break(w.Ctx, "n", "x", "why"), "hold", `"x"`, "id of a hold")
		refused(p.Break(w.Ctx, "n", hold, ""), "reason", "0 bytes", "1 to 256")
		refused(p.Break(w.Ctx, "n", hold, strings.Repeat("a", 257)), "reason", "257 bytes", "1 to 256")
		require.ErrorIs(w, p.Break(ended(w.Ctx), "n", hold, "why"), context.Canceled)
		require.ErrorIs(w, p.Break(w.Ctx, "other", hold, "why"), rwlock.ErrNotHeld)
		require.NoError(w, lease.Err())
		require.NoError(w, lease.Renew(w.Ctx))
		require.NoError(w, p.Close())
		require.ErrorIs(w, p.Break(w.Ctx, "n", hold, "why"), rwlock.ErrClosed)
	}))
}

// The end of ctx ends the wait, and the hold stays unrenewable; a second Break waits on.
func TestBreakIsRepeated(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, op := w.Process(), operator(w)
		lease := holder.Take("n", rwlock.Write)
		hold := w.Inspect("n").Holders[0].Hold
		holder.CutOff(0)
		op.Link.Delay(10 * time.Millisecond)
		err := op.Break(w.Soon(70*time.Millisecond), "n", hold, "first")
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, rwlock.ErrNoQuorum, "it was told first, and asks again at the end")
		op.Link.Delay(0)
		require.NoError(w, lease.Err())
		second := breaks(w, op, "n", hold, "second")
		holder.Restore(0)
		w.UntilOver(lease)
		requireBroken(w, lease.Err(), "first")
		require.NoError(w, second.Result())
		require.ErrorIs(w, op.Break(w.Ctx, "n", hold, "third"), rwlock.ErrNotHeld)

		w.Mini.Stop()
		require.ErrorIs(w, op.Break(w.Ctx, "n", hold, "no server"), rwlock.ErrNoQuorum)
		w.Mini.Recover()
	})
}

// listed returns the names of a list that has no errors, in order.
func listed(w *world, l *rwlock.Locker, prefix string, opts ...rwlock.ListOption) (names []string) {
	w.Helper()
	for state, err := range l.List(w.Ctx, prefix, opts...) {
		require.NoError(w, err)
		names = append(names, state.Name)
	}
	slices.Sort(names)
	return names
}

func listShows(w *world) {
	p, q := w.Process(), w.Process()
	require.Empty(w, listed(w, q.Locker, ""))
	leases := takeEach(p, trickyNames)
	globs := []string{"a*1", "a*2", "ab1", `a\1`, "a[b]1", "a?1", "b"}
	for _, name := range globs {
		leases = append(leases, p.Take(name, rwlock.Read))
	}
	waiting := q.Queue("a*1", rwlock.Write)
	q.Section("was held")

	before := w.Keys()
	expected := slices.Sorted(slices.Values(slices.Concat(globs, trickyNames)))
	require.Equal(w, expected, listed(w, q.Locker, ""))
	withFree := slices.Sorted(slices.Values(slices.Concat(expected, []string{"was held"})))
	require.Equal(w, withFree, listed(w, q.Locker, "", rwlock.WithFreeLocks()))
	for _, name := range expected {
		require.Contains(w, listed(w, q.Locker, name), name)
	}
	require.Equal(w, []string{"a*1", "a*2"}, listed(w, q.Locker, "a*"), "the prefix is no pattern")
	require.Equal(w, before, w.Keys())
	for state, err := range q.List(w.Ctx, "a*1") {
		require.NoError(w, err)
		inspected := w.Inspect("a*1")
		require.Equal(w, inspected.Holders[0].Hold, state.Holders[0].Hold)
		require.Equal(w, inspected.Waiters[0].Hold, state.Waiters[0].Hold)
		require.Equal(w, inspected.Token, state.Token)
		require.Len(w, state.Masters, 1)
	}
	w.Release(leases...)
	w.Release(waiting.Granted())
}

func TestListRefuses(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		only := func(l *rwlock.Locker, ctx context.Context, prefix string, opts ...rwlock.ListOption) error {
			var errs []error
			for state, err := range l.List(ctx, prefix, opts...) {
				require.Zero(w, state)
				errs = append(errs, err)
			}
			require.Len(w, errs, 1)
			return errs[0]
		}
		refusedOption(w.T, only(p.Locker, w.Ctx, "\xff"), "namePrefix", `\xff`, "UTF-8")
		refusedOption(w.T, only(p.Locker, w.Ctx, strings.Repeat("a", 513)), "namePrefix", "aaa", "512 bytes")
		ended, cancel := context.WithCancelCause(w.Ctx)
		cancel(fmt.Errorf("enough"))
		expect.Fails(w, only(p.Locker, ended, ""), context.Canceled, "enough")
		require.NoError(w, p.Close())
		require.ErrorIs(w, only(p.Locker, w.Ctx, ""), rwlock.ErrClosed)
	}))
}

// A list may end at any lock: by its caller, by its context, by Close.
func TestListEndsEarly(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const locks = 100
		p := w.Process()
		takeEach(p, numbered("n", locks))
		require.Len(w, slices.Compact(listed(w, p.Locker, "n")), locks)

		n := 0
		for _, err := range p.List(w.Ctx, "") {
			require.NoError(w, err)
			if n++; n == 60 {
				break
			}
		}
		require.Equal(w, 60, n)

		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		n = 0
		for state, err := range p.List(ctx, "") {
			if n++; n == 10 {
				cancel()
			}
			if err != nil && state.Name == "" {
				require.ErrorIs(w, err, context.Canceled)
			}
		}
		require.Less(w, n, locks)

		n = 0
		var last error
		for _, err := range p.List(w.Ctx, "") {
			if n++; n == 10 {
				require.NoError(w, p.Close())
			}
			last = err
		}
		require.ErrorIs(w, last, rwlock.ErrClosed)
		require.Less(w, n, locks)
	})
}

// A server looks at a few hundred of its keys in a step.
func TestListTakesSteps(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 1)
	p := w.Process()
	expected := numbered("n", 1200)
	takeEach(p, expected, rwlock.WithTTL(time.Hour))
	slices.Sort(expected)
	w.Server.ResetStats()
	require.Equal(t, expected, listed(w, p.Locker, ""))
	require.GreaterOrEqual(t, w.Server.Stats()["scan"].Calls, 3)
}

// What stands under the keys of a lock and was not written by this library has an error of its own.
func TestListShowsForeignKeys(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.Take("held", rwlock.Write)
		w.Command("SET", "fencelock:{foreign}", "x")
		w.Command("SET", "fencelock:{not%20encoded}", "x")
		w.Command("SET", "fencelock:{}", "x")
		w.Command("SET", "other:{held}", "x")
		shown := map[string]error{}
		for state, err := range p.List(w.Ctx, "") {
			shown[state.Name] = err
		}
		require.Len(w, shown, 2)
		require.NoError(w, shown["held"])
		require.ErrorContains(w, shown["foreign"], "WRONGTYPE")
		require.Contains(w, shown, "foreign")
	}))
}

// A server that stops answering costs its own locks, and one error.
func TestListGoesOnWithoutAServer(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, redisBinary(t), 0)
	c.NodeTimeout(time.Minute) // or the others take it for dead
	locker := testkit.Dial(t, "", c.Option())
	silent := c.Owner(testredis.Slots / 2) // the list comes to it second
	var expected []string
	for _, master := range c.Masters() {
		for _, name := range namesOf(c, master, 3) {
			require.NoError(t, expect.ErrorOf(locker.Lock(t.Context(), name, rwlock.WithTTL(time.Hour))))
			if master != silent {
				expected = append(expected, name)
			}
		}
	}
	var names []string
	var failed []error
	defer silent.Thaw()
	for state, err := range locker.List(t.Context(), "n") {
		if err != nil {
			failed = append(failed, err)
		} else {
			names = append(names, state.Name)
		}
		switch len(names) { // at the begin and the end the list asks all servers for their slots, each for a second only
		case 1:
			silent.Freeze()
		case len(expected):
			silent.Thaw()
		}
	}
	slices.Sort(names)
	slices.Sort(expected)
	require.Equal(t, expected, names)
	require.Len(t, failed, 1)
	require.Equal(t, silent.Addr(), testkit.As[*rwlock.NodeError](t, failed[0]).Addr)

	silent.Freeze() // and where it is silent from the begin to the end
	require.Eventually(t, func() bool {
		names = nil
		for state, err := range locker.List(t.Context(), "n") {
			if err == nil {
				names = append(names, state.Name)
			}
		}
		slices.Sort(names)
		return slices.Equal(expected, names)
	}, testkit.Patience, time.Millisecond)
}

// A replica that has not synchronized so far shows what it had before, or nothing: it is not asked.
func TestAReplicaShowsNothing(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, redisBinary(t))
	locker := testkit.Dial(t, server.Addr(), rueidis.ClientOption{})
	require.NoError(t, expect.ErrorOf(locker.Lock(t.Context(), "orders", rwlock.WithTTL(time.Hour))))
	state := expect.NoError(locker.Inspect(t.Context(), "orders")).In(t)
	commandOn(t, server, "REPLICAOF", "127.0.0.1", "1")
	const says = "READONLY You can't write against a read only replica.: the server is a replica; locks need its master"
	errs := map[string]error{}
	_, errs["inspect"] = locker.Inspect(t.Context(), "orders")
	_, errs["inspect of another"] = locker.Inspect(t.Context(), "other")
	errs["break"] = locker.Break(t.Context(), "orders", state.Holders[0].Hold, "stuck")
	errs["break of none"] = locker.Break(t.Context(), "other", state.Holders[0].Hold, "stuck")
	for _, prefix := range []string{"", "none"} {
		for _, err := range locker.List(t.Context(), prefix) {
			errs["list of "+prefix] = err
		}
	}
	require.Len(t, errs, 6)
	for call, err := range errs {
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, call)
		require.ErrorContains(t, err, "the server is a replica; locks need its master", call)
	}
	require.ErrorContains(t, errs["list of none"], says)
}

// A server that does not answer whether it is a replica may be one, which shows nothing.
func TestAServerThatMayBeAReplicaShowsNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.ProcessOver(testkit.Net{Tuned: true})
		p.Take("orders", rwlock.Write)
		calls := map[string]func() error{
			"inspect": func() error {
				_, err := p.Inspect(w.Ctx, "orders")
				return err
			},
			"list": func() (failed error) {
				for _, err := range p.List(w.Ctx, "") {
					failed = errors.Join(failed, err)
				}
				return failed
			},
		}
		for call, run := range calls {
			p.Link.OnCommand(func(cmd []string) {
				if cmd[0] == "ZADD" {
					p.Link.OnCommand(nil)
					p.Link.Cut()
				}
			})
			require.ErrorIs(w, run(), rwlock.ErrNoQuorum, call)
			require.NoError(w, run(), call)
		}
	})
}

// The user of the locks may not list them: that has a right of its own.
func TestListNeedsTheRightToScan(t *testing.T) {
	t.Parallel()
	d := aclOfOneRedis(t, redisBinary(t))
	d.option.Username, d.option.Password = "locks", "secret"
	locker := d.locker(t, aclTTL)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	require.NoError(t, expect.ErrorOf(locker.Lock(ctx, "orders")))
	for state, err := range locker.List(ctx, "") {
		require.Empty(t, state.Name)
		require.ErrorContains(t, err, "scan")
		_ = testkit.As[*rwlock.NodeError](t, err)
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, "locks may be missing")
	}
	commandOn(t, d.servers[0], "ACL", "SETUSER", "locks", "+scan")
	for state, err := range locker.List(ctx, "") {
		require.NoError(t, err)
		require.Equal(t, "orders", state.Name)
	}
}
