package reentrant_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestNewReportsWhatItCannotWorkWith(t *testing.T) {
	inFakeTime(t, func(w *world) {
		remote := start(w).remote
		ctx, _ := owned(w)
		for field, l := range map[string]*reentrant.Locker{
			"locker":       reentrant.New(nil),
			"option":       reentrant.New(remote.Locker, nil),
			"WithMaxDepth": reentrant.New(remote.Locker, reentrant.WithMaxDepth(0)),
		} {
			for range 2 {
				expect.Fails(w, expect.ErrorOf(l.Lock(ctx, "a")), rwlock.ErrOption, field)
				require.ErrorIs(w, l.RDo(ctx, "a", func(context.Context) error { panic("not reached") }), rwlock.ErrOption)
			}
		}
		require.Zero(w, scriptsSent(w))
	})
}

func TestOptionsAreThoseOfTheFirstAcquisition(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, owner := owned(w)
		shared := make([]rwlock.LockOption, 0, 4) // with room for what the package adds: it must not add it there
		outer := must(w)(p.Lock(ctx, "a", append(shared, rwlock.WithMeta("outer"), rwlock.WithTTL(time.Minute))...))
		nested := must(w)(p.Lock(ctx, "a", rwlock.WithMeta("nested"), rwlock.WithTTL(time.Hour)))
		state := p.inspect("a")
		require.Len(w, state.Holders, 1)
		require.Equal(w, "outer", state.Holders[0].Meta)
		require.Equal(w, owner.String(), state.Holders[0].Owner)
		require.LessOrEqual(w, state.Holders[0].Remaining, time.Minute)
		require.Greater(w, state.Holders[0].Remaining, 50*time.Second)
		for _, unused := range shared[:4][2:] {
			require.Nil(w, unused)
		}
		require.NoError(w, nested.Release(ctx))
		require.NoError(w, outer.Release(ctx))
	})
}

func TestAnEndedContextTakesNothing(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		outer, nested := must(w)(p.Lock(ctx, "a")), must(w)(p.Lock(ctx, "a"))
		reason := errors.New("the caller has gone")
		ended, cancel := context.WithCancelCause(ctx)
		cancel(reason)
		expect.Fails(w, expect.ErrorOf(p.Lock(ended, "a")), rwlock.ErrNotAcquired, context.Canceled, reason)
		require.NoError(w, nested.Release(ended), "what is there is given back all the same")
		require.NoError(w, outer.Release(ended), "nothing nests in it")
		require.Empty(w, p.inspect("a").Holders)
	})
}

// To use what this package has not made is a fault of the program.
func TestZeroValuesPanic(t *testing.T) {
	ctx := reentrant.WithOwner(t.Context())
	locker, hold, holds := new(reentrant.Locker), new(reentrant.Hold), new(reentrant.MultiHold)
	const made, several = "reentrant: a Locker is made by New", "reentrant: a MultiHold is made by a Locker"
	for _, c := range []struct {
		want string
		use  func()
	}{
		{made, func() { _, _ = locker.Lock(ctx, "n") }},
		{made, func() { _, _ = locker.TryRLock(ctx, "n") }},
		{made, func() { _ = locker.Do(ctx, "n", func(context.Context) error { return nil }) }},
		{"rwlock: a Locker is made by New or Open", func() { _, _ = reentrant.New(new(rwlock.Locker)).Lock(ctx, "n") }},
		{"reentrant: a Hold is made by a Locker", func() { _ = hold.Release(ctx) }},
		{"reentrant: a Hold is made by a Locker", func() { hold.Token() }},
		{"reentrant: a Hold is made by a Locker", func() { hold.Context(ctx) }},
		{several, func() { _ = holds.Err() }},
		{several, func() { _ = holds.Release(ctx) }},
		{several, func() { holds.Context(ctx) }},
		{several, func() { holds.Holds() }},
	} {
		require.PanicsWithValue(t, c.want, c.use)
	}
	require.NoError(t, (*reentrant.Hold)(nil).Release(ctx))
	require.NoError(t, (*reentrant.MultiHold)(nil).Release(ctx))
	_, err := reentrant.New(nil).Lock(ctx, "n")
	require.Equal(t, "locker", testkit.As[*rwlock.OptionError](t, err).Option)
}

// Work that is nil is refused before the lock is asked for.
func TestNilWorkIsRefusedBeforeAnythingIsSent(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		w.Mini.ResetCalls()
		for _, do := range []func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error{
			p.Do, p.RDo,
		} {
			require.Equal(w, "fn", testkit.As[*rwlock.OptionError](w, do(w.Ctx, "n", nil)).Option)
		}
		require.Empty(w, w.Mini.AllCalls())
		require.Empty(w, p.inspect("n").Holders)
	})
}

func TestLeasesShowTheHoldsOfAnOwner(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		ctx, owner := owned(w)
		require.Empty(w, slices.Collect(p.Leases()))
		outer := must(w)(p.Lock(ctx, "a"))
		must(w)(p.RLock(ctx, "a"))
		nested := must(w)(p.Lock(ctx, "a"))
		other := p.remote.Take("b", rwlock.Write)

		all := slices.Collect(p.Leases())
		require.Len(w, all, 1)
		require.Equal(w, "a", all[0].Name)
		require.Equal(w, owner.String(), all[0].Owner)
		require.NotEqual(w, owner.String(), all[0].Hold)
		require.Equal(w, outer.Token(), all[0].Token)
		require.Equal(w, 3, all[0].Count)
		require.Len(w, slices.Collect(p.remote.Leases()), 2)

		// The same owner in another process shares the lease on the masters, and has one hold there.
		q := start(w)
		joined := must(w)(q.Lock(elsewhere(w, owner), "a"))
		all = slices.Collect(q.Leases())
		require.Len(w, all, 1)
		require.Equal(w, 1, all[0].Count)
		require.Equal(w, owner.String(), all[0].Owner)
		require.NoError(w, joined.Release(ctx))

		require.NoError(w, nested.Release(ctx))
		for s := range p.Leases() {
			require.Equal(w, 2, s.Count)
		}
		w.Release(other)
		waiting, _ := owned(w)
		go func() { _, _ = p.Lock(waiting, "a") }()
		w.Settle()
		require.Len(w, slices.Collect(p.Leases()), 1, "without what waits")
	})
}

func FuzzParseOwner(f *testing.F) {
	owner := reentrant.NewOwner()
	for _, text := range []string{owner.String(), strings.ToLower(owner.String())} {
		require.Equal(f, owner, expect.NoError(reentrant.ParseOwner(text)).In(f))
	}
	for _, seed := range []string{
		"", "0", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"80000000000000000000000000", "00000000000000000000000000", "01ARZ3NDEKTSV4RRFFQ69G5FA\xff",
		owner.String()[1:], owner.String() + "0", strings.Repeat("U", 26), " " + owner.String()[1:],
		strings.Repeat("x", 1<<20),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		owner, err := reentrant.ParseOwner(text)
		if err != nil {
			require.ErrorIs(t, err, rwlock.ErrOption)
			require.Zero(t, owner)
			require.Less(t, len(err.Error()), 200)
			return
		}
		require.NotZero(t, owner)
		require.Equal(t, strings.ToUpper(text), owner.String())
		require.Equal(t, owner, expect.NoError(reentrant.ParseOwner(owner.String())).In(t))
	})
}

func TestOwnersInContexts(t *testing.T) {
	plain := context.Background()
	_, ok := reentrant.OwnerFrom(plain)
	require.False(t, ok)

	edge := reentrant.WithOwner(plain)
	owner, ok := reentrant.OwnerFrom(edge)
	require.True(t, ok)
	require.NotZero(t, owner)
	require.Equal(t, edge, reentrant.WithOwner(edge), "kept")

	forked, ok := reentrant.OwnerFrom(reentrant.Fork(edge))
	require.True(t, ok)
	require.NotEqual(t, owner, forked)
	still, _ := reentrant.OwnerFrom(edge)
	require.Equal(t, owner, still)

	other := reentrant.NewOwner()
	acting := reentrant.AsOwner(edge, other)
	got, ok := reentrant.OwnerFrom(acting)
	require.True(t, ok)
	require.Equal(t, other, got)
	require.Equal(t, acting, reentrant.WithOwner(acting), "kept")

	nobody := reentrant.AsOwner(edge, reentrant.Owner{})
	got, ok = reentrant.OwnerFrom(nobody)
	require.False(t, ok)
	require.Zero(t, got)
	_, ok = reentrant.OwnerFrom(reentrant.WithOwner(nobody))
	require.True(t, ok)
}

func TestNoOwnerIsAnErrorAtOnce(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		for _, ctx := range []context.Context{w.Ctx, reentrant.AsOwner(w.Ctx, reentrant.Owner{})} {
			for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
				for _, try := range []bool{false, true} {
					hold, err := p.take(ctx, "a", mode, try)
					require.Nil(w, hold)
					require.ErrorIs(w, err, reentrant.ErrNoOwner)
					require.EqualError(w, err, `reentrant: no owner in the context, attach one with WithOwner: lock "a"`)
				}
			}
		}
		require.Zero(w, scriptsSent(w))
	})
}

// A fork does not join what its parent's process joins: it is another thread of control.
func TestForkLeavesTheJoiningToItsParent(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		outer := must(w)(first.Lock(ctx, "a"))
		there := elsewhere(w, owner)
		require.NoError(w, must(w)(second.TryLock(there, "a")).Release(there))
		require.NoError(w, must(w)(second.TryLock(reentrant.WithOwner(there), "a")).Release(there))
		sent := scriptsSent(w)
		require.ErrorIs(w, expect.ErrorOf(second.TryLock(reentrant.Fork(there), "a")), rwlock.ErrNotAcquired)
		require.Equal(w, 1, scriptsSent(w)-sent, "an ordinary attempt and no join before it")
		require.NoError(w, outer.Release(ctx))
	})
}

// readInVain waits for a minute to read "a".
func (p *process) readInVain(w *world, ctx context.Context, begun time.Time) {
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := p.RLock(soon, "a")
	require.Equal(w, time.Minute, time.Since(begun))
	require.ErrorIs(w, err, context.DeadlineExceeded)
	refused := testkit.As[*rwlock.AcquireError](w, err)
	require.Equal(w, "a", refused.Name)
	require.Equal(w, rwlock.Read, refused.Mode)
	require.Equal(w, time.Minute, refused.Waited)
}

func TestWaitingForAFirstAcquisitionEndsWithTheContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		stranger, _ := owned(w)
		held := must(w)(p.Lock(stranger, "a"))
		ctx, _ := owned(w)
		impatient, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		first := make(chan error)
		go func() {
			_, err := p.Lock(impatient, "a")
			first <- err
		}()
		synctest.Wait()

		begun := time.Now()
		_, err := p.TryLock(ctx, "a")
		expect.Fails(w, err, rwlock.ErrNotAcquired, "another goroutine with the same owner is acquiring it")
		require.Zero(w, time.Since(begun), "a try does not wait")

		p.readInVain(w, ctx, begun)

		// When the first acquisition fails, whoever waits for it makes the next one.
		second := make(chan *reentrant.Hold)
		go func() {
			h, err := p.Lock(ctx, "a")
			if err != nil {
				w.Errorf("lock: %v", err)
			}
			second <- h
		}()
		require.ErrorIs(w, <-first, context.DeadlineExceeded)
		synctest.Wait()
		require.NoError(w, held.Release(stranger))
		h := <-second
		require.Equal(w, 1, h.Depth())
		require.NoError(w, h.Release(ctx))
	})
}

// A hook of the locker may use the reentrant locker: no mutex is held over it.
func TestAHookMayAskTheLocker(t *testing.T) {
	inFakeTime(t, func(w *world) {
		ctx, _ := owned(w)
		var l *reentrant.Locker
		told := make(chan error, 1)
		remote := w.Process(rwlock.WithTrace(&rwlock.Trace{
			Lost: func(context.Context, rwlock.TraceEvent, *rwlock.LostError) {
				_, err := l.TryLock(ctx, "a")
				told <- err
			},
		}))
		l = reentrant.New(remote.Locker)
		outer := must(w)(l.Lock(ctx, "a"))
		remote.Link.Blackhole(testredis.Both)
		require.ErrorIs(w, <-told, rwlock.ErrLost)
		require.ErrorIs(w, outer.Release(ctx), rwlock.ErrLost)
	})
}
