package rwlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func maxHold(w *world) {
	limit := w.TTL * 5 / 4
	if w.Mini == nil {
		limit = w.TTL * 2 / 5 // longer than a machine stands still
	}
	p, q := w.Process(), w.Process()
	start := time.Now()
	lease := p.Take("n", rwlock.Write, rwlock.WithMaxHold(limit))
	next := q.Queue("n", rwlock.Write)
	w.UntilOver(lease)
	over := time.Since(start)
	require.GreaterOrEqual(w, over, limit)
	if w.Mini != nil {
		require.Equal(w, limit, over)
		require.Positive(w, p.Stats().Renewed, "it lived longer than its TTL")
	}
	loss := w.Loss(lease.Err())
	require.Equal(w, rwlock.ReasonMaxHold, loss.Reason)
	require.Equal(w, limit, loss.Limit)
	require.Equal(w, lease.Token(), loss.Token)
	require.Equal(w, "n", loss.Name)
	w.Release(next.Granted())
	w.RequireLess(next.At.Sub(start), limit+w.TTL/2, "the hold was given back, not left to expire")
	require.ErrorIs(w, lease.Release(w.Ctx), rwlock.ErrLost)
}

func withoutRenewal(w *world) {
	p, q := w.Process(), w.Process()
	start := time.Now()
	lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
	deadline := lease.Deadline()
	next := q.Queue("n", rwlock.Write)
	w.UntilOver(lease)
	over := time.Since(start)
	require.Equal(w, rwlock.ReasonExpired, w.Loss(lease.Err()).Reason)
	require.Equal(w, w.TTL, w.Loss(lease.Err()).Limit)
	if w.Mini != nil {
		drift := w.TTL/100 + 2*time.Millisecond
		require.Equal(w, w.TTL-drift, over)
		require.Equal(w, start.Add(over), deadline)
	}
	w.Release(next.Granted())
	require.False(w, next.At.Before(deadline), "the next came in while the first was trusted")
	require.Zero(w, p.Stats().Renewed)
	require.Equal(w, rwlock.ReasonExpired, w.Loss(lease.Release(w.Ctx)).Reason)
	w.OnlyTokensLeft()
}

func renewedForLong(w *world) {
	p, q := w.Process(), w.Process()
	first, second := p.Take("n", rwlock.Read), p.Take("n", rwlock.Read)
	deadline := first.Deadline()
	next := q.Queue("n", rwlock.Write)
	ttls := time.Duration(3)
	if w.Mini == nil {
		testredis.NeedAll(w, "a TTL is long there")
		ttls = 2
	}
	w.Eventually("both were renewed over several TTLs", func() bool {
		require.NoError(w, errors.Join(first.Err(), second.Err()))
		return min(first.Deadline().Sub(deadline), second.Deadline().Sub(deadline)) > (ttls-1)*w.TTL
	})
	require.True(w, next.IsWaiting())
	require.Zero(w, p.Stats().RenewFailed)
	w.Release(first, second)
	w.Release(next.Granted())
	w.OnlyTokensLeft()
}

func renewedByHand(w *world) {
	lease := w.Process().Take("n", rwlock.Write, rwlock.WithoutRenewal())
	before, token := lease.Deadline(), lease.Token()
	w.Eventually("time has gone by", func() bool { return time.Until(before) < w.TTL*9/10 })
	require.NoError(w, lease.Renew(w.Ctx))
	require.Greater(w, lease.Deadline().Sub(before), w.TTL/20)
	require.Equal(w, token, lease.Token())
	w.Release(lease)
	require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrReleased)
	require.Empty(w, w.Inspect("n").Holders)
	w.OnlyTokensLeft()
}

func lostOnServer(w *world) {
	p, q := w.Process(), w.Process()
	lease := p.Take("n", rwlock.Write)
	w.FlushAll()
	usurper := q.Take("n", rwlock.Write)
	require.Greater(w, usurper.Token(), lease.Token(), "the storage can tell them apart")
	w.UntilOver(lease)
	require.Equal(w, rwlock.ReasonGone, w.Loss(lease.Err()).Reason)
	allFail(w, rwlock.ErrLost, lease.Renew, lease.Release)
	require.NoError(w, usurper.Err())
	w.Release(usurper)
	w.OnlyTokensLeft()
}

func doRuns(w *world) {
	type key struct{}
	reason := errors.New("from the section")
	p, q := w.Process(), w.Process()
	for _, c := range []struct {
		mode rwlock.Mode
		do   func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
	}{{rwlock.Write, p.Do}, {rwlock.Read, p.RDo}} {
		var inner context.Context
		err := c.do(context.WithValue(w.Ctx, key{}, 7), "n", func(ctx context.Context) error {
			inner = ctx
			require.NoError(w, ctx.Err())
			require.Equal(w, 7, ctx.Value(key{}))
			fence := fenceOf(w, ctx, "n")
			state := w.Inspect("n")
			require.Equal(w, state.Token, fence.Token)
			require.Equal(w, c.mode, state.Mode)
			require.Equal(w, c.mode, fence.Mode)
			return reason
		})
		require.Equal(w, reason, err)
		require.ErrorIs(w, context.Cause(inner), rwlock.ErrReleased)
		require.NoError(w, c.do(w.Ctx, "n", func(context.Context) error { return nil }))
		w.OnlyTokensLeft()
	}

	held := q.Take("n", rwlock.Write)
	err := p.Do(w.Ctx, "n", func(context.Context) error {
		w.Error("ran without the lock")
		return nil
	}, rwlock.WithMaxWait(w.TTL/2))
	require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	w.Release(held)
}

func doPanics(w *world) {
	p := w.Process()
	type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
	for _, do := range []doing{p.Do, p.RDo} {
		require.PanicsWithValue(w, "in the section", func() {
			_ = do(w.Ctx, "n", func(context.Context) error { panic("in the section") })
		})
		require.Zero(w, p.Stats().Held)
		w.OnlyTokensLeft()
	}
}

func doLoses(w *world) {
	reason := errors.New("from the section")
	p := w.Process()
	for _, result := range []error{nil, reason} {
		err := p.Do(w.Ctx, "n", func(ctx context.Context) error {
			w.FlushAll()
			w.UntilClosed(ctx.Done())
			require.Equal(w, rwlock.ReasonGone, w.Loss(context.Cause(ctx)).Reason)
			return result
		})
		require.ErrorIs(w, err, rwlock.ErrLost)
		if result != nil {
			require.ErrorIs(w, err, reason)
		}
	}
}

func leaseContext(w *world) {
	type key struct{}
	p := w.Process()
	parent, cancel := context.WithCancelCause(context.WithValue(w.Ctx, key{}, "v"))
	lease := p.Take("n", rwlock.Write)
	ctx := lease.Context(parent)
	require.NoError(w, ctx.Err())
	require.Equal(w, "v", ctx.Value(key{}))
	require.Equal(w, lease.Fence(), expect.NoError(fencing.Require(ctx, "n")).In(w))

	reason := errors.New("the caller went home")
	cancel(reason)
	require.Equal(w, reason, context.Cause(ctx))
	require.NoError(w, lease.Err(), "a parent's end is not the lease's")

	child := lease.Context(w.Ctx)
	w.Release(lease)
	w.UntilClosed(child.Done())
	require.ErrorIs(w, context.Cause(child), rwlock.ErrReleased)
	late := lease.Context(w.Ctx)
	require.ErrorIs(w, context.Cause(late), rwlock.ErrReleased, "a context of a lease that has ended has ended")
	select {
	case <-lease.Done():
	default:
		w.Error("Done is open after Release")
	}

	lost := p.Take("n", rwlock.Write)
	child = lost.Context(w.Ctx)
	w.FlushAll()
	w.UntilClosed(child.Done())
	require.Equal(w, lost.Err(), context.Cause(child))
	require.Equal(w, lost.Token(), w.Loss(context.Cause(child)).Token)
}

func mutexExcludes(w *world) {
	p, q := w.Process(), w.Process()
	shared, same, remote := p.RWMutex("n"), p.RWMutex("n"), q.RWMutex("n")
	require.NoError(w, shared.Lock(w.Ctx))
	for _, mu := range []*rwlock.RWMutex{shared, same, remote} {
		allFail(w, rwlock.ErrNotAcquired, mu.TryLock, mu.TryRLock)
	}
	require.NoError(w, shared.Unlock(w.Ctx))
	succeed(w, shared.RLock, shared.RLock, same.RLock, remote.RLock)
	require.ErrorIs(w, shared.TryLock(w.Ctx), rwlock.ErrNotAcquired)
	succeed(w, same.RUnlock, shared.RUnlock, remote.RUnlock, shared.RUnlock)

	// A counter without a lock of its own: the race detector and the sum tell whether the sections were alone.
	const goroutines, rounds = 6, 5
	counter := 0
	var all sync.WaitGroup
	for i := range goroutines {
		mu := []*rwlock.RWMutex{shared, remote}[i%2]
		all.Go(func() {
			for range rounds {
				if err := mu.Lock(w.Ctx); err != nil {
					w.Error(err)
					return
				}
				counter++
				if err := mu.Unlock(w.Ctx); err != nil {
					w.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(w, goroutines*rounds, counter)
	w.OnlyTokensLeft()
}

func mutexUnlocks(w *world) {
	mu := w.Process().RWMutex("n")
	allFail(w, rwlock.ErrNotHeld, mu.Unlock, mu.RUnlock)
	require.Zero(w, mu.Token())
	require.ErrorIs(w, context.Cause(mu.Context(w.Ctx)), rwlock.ErrNotHeld)

	require.NoError(w, mu.RLock(w.Ctx))
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld, "held for reading")
	require.NoError(w, mu.RUnlock(w.Ctx))

	require.NoError(w, mu.Lock(w.Ctx))
	require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld, "held for writing")
	require.GreaterOrEqual(w, w.Inspect("n").Token, mu.Token(), "Inspect shows the last of the block")
	ctx := mu.Context(w.Ctx)
	require.Equal(w, mu.Token(), fenceOf(w, ctx, "n").Token)
	require.NoError(w, mu.Unlock(w.Ctx))
	w.UntilClosed(ctx.Done())
	require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
	require.ErrorContains(w, context.Cause(ctx), `lock "n"`)

	require.NoError(w, mu.Lock(w.Ctx))
	ctx = mu.Context(w.Ctx)
	w.FlushAll()
	w.UntilClosed(ctx.Done())
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
	require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrNotHeld)
	require.NoError(w, mu.Lock(w.Ctx), "a loss leaves it usable")
	require.NoError(w, mu.Unlock(w.Ctx))
	w.OnlyTokensLeft()
}

// trickyNames look like each other's keys, or break naive quoting.
var trickyNames = []string{
	"a", "A", "a:b", "a:h", "a:q", "a:w", "a:t", "a}:t", "a}", "{a", "{a}", "{{a}}", "a{b}c", "{", "}", "{}", "}{", "}:t",
	"%", "%%", "%7B", "%7b", "%257B", "%7Ba%7D", "%25", "%d", "a%", " ", "a ", " a", "a b", "a  b",
	"\n", "a\nb", "\r\n", "\x00",
	"*", "?", "[a]", "\\", "'", "\"", "名前", "é", "e\u0301", "\U0001F512", "fencelock:{a}", "n:a", "c:a", "0",
	strings.Repeat("a", 512), strings.Repeat("é", 256), strings.Repeat("{", 512), strings.Repeat("%", 511) + "}",
}

func anyName(w *world) {
	p, q := w.Process(), w.Process()
	var leases []*rwlock.Lease
	var waiting []*pending
	tags := map[string]string{}
	for _, name := range trickyNames {
		before := len(w.LockKeys())
		lease := expect.NoError(p.TryLock(w.Ctx, name)).In(w, name, "collides")
		require.Equal(w, name, lease.Name())
		leases = append(leases, lease)
		require.Len(w, w.LockKeys(), before+1, "%q shares a key", name)
	}
	for _, key := range w.LockKeys() {
		// A cluster hashes what is between the first brace and the first closing one after it.
		open := strings.IndexByte(key, '{')
		shut := strings.IndexByte(key[open:], '}')
		require.Greater(w, shut, 1, "no hash tag in %q", key)
		tag := key[open : open+shut+1]
		rest := key[open+shut+1:]
		require.Empty(w, rest, "the tag of %q does not span the name", key)
		tags[tag] += rest
	}
	require.Len(w, tags, len(trickyNames))

	for i, name := range trickyNames {
		_, err := q.TryRLock(w.Ctx, name)
		require.Equal(w, leases[i].Owner(), testkit.As[*rwlock.AcquireError](w, err, "%q: %v", name, err).Holder.Owner)
		waiting = append(waiting, q.Queue(name, rwlock.Write))
	}
	handedOff := q.Stats().HandedOff
	for i, lease := range leases {
		w.Release(lease)
		next := waiting[i].Granted()
		require.Equal(w, lease.Name(), next.Name())
		require.Greater(w, next.Token(), lease.Token())
		w.Release(next)
	}
	require.EqualValues(w, len(leases), q.Stats().HandedOff-handedOff)
	w.OnlyTokensLeft()
}

func refusedName(w *world) {
	p := w.Process()
	run := func(context.Context) error { w.Error("ran without the lock"); return nil }
	for _, name := range []string{
		"", strings.Repeat("a", 513), strings.Repeat("é", 257), "\xff", "a\xc3", "\xed\xa0\x80", "a\xf8b",
	} {
		mu := p.RWMutex(name)
		for entry, call := range map[string]func() error{
			"Lock":         func() error { return expect.ErrorOf(p.Lock(w.Ctx, name)) },
			"TryLock":      func() error { return expect.ErrorOf(p.TryLock(w.Ctx, name)) },
			"RLock":        func() error { return expect.ErrorOf(p.RLock(w.Ctx, name)) },
			"TryRLock":     func() error { return expect.ErrorOf(p.TryRLock(w.Ctx, name)) },
			"Do":           func() error { return p.Do(w.Ctx, name, run) },
			"RDo":          func() error { return p.RDo(w.Ctx, name, run) },
			"Inspect":      func() error { return expect.ErrorOf(p.Inspect(w.Ctx, name)) },
			"RWMutex.Lock": func() error { return mu.Lock(w.Ctx) },
			"RWMutex.RTry": func() error { return mu.TryRLock(w.Ctx) },
		} {
			err := call()
			require.ErrorIs(w, err, rwlock.ErrOption, "%s(%q)", entry, name)
			e := testkit.As[*rwlock.OptionError](w, err)
			require.Equal(w, "name", e.Option)
			require.NotEmpty(w, e.Rule)
			require.Contains(w, err.Error(), e.Rule)
		}
	}
	require.Zero(w, p.Link.Calls("EVALSHA")+p.Link.Calls("EVAL"), "nothing is sent")
	require.Empty(w, w.Keys())
}

func prefixes(w *world) {
	p, q, r := w.Process(), w.Process(rwlock.WithPrefix("team:blue")), w.Process(rwlock.WithPrefix("team:blue"))
	one, two := p.Take("n", rwlock.Write), q.Take("n", rwlock.Write)
	next := r.Acquire(w.Ctx, "n", rwlock.Write)
	w.Eventually("one waits", func() bool {
		s, err := q.Inspect(w.Ctx, "n")
		return err == nil && len(s.Waiters) == 1
	})
	for _, key := range w.LockKeys() {
		require.Regexp(w, `^(fencelock|team:blue):\{n\}`, key)
	}
	w.Release(next.GrantedAfter(two))
	require.EqualValues(w, 1, r.Stats().HandedOff, "the message found its way")
	w.Release(one)
	w.OnlyTokensLeft()
}
