package rwlock_test

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// readersShown returns what the holders in s said of themselves, by owner, and fails the test if they are no readers.
func readersShown(w *world, s rwlock.State) map[string]string {
	shown := map[string]string{}
	for _, h := range s.Holders {
		shown[h.Owner] = h.Meta
		require.Equal(w, rwlock.Read, h.Mode)
		require.Equal(w, 1, h.Count)
		require.LessOrEqual(w, h.Remaining, w.TTL)
		require.Greater(w, h.Remaining, w.TTL/3)
		require.GreaterOrEqual(w, h.Held, time.Duration(0))
	}
	return shown
}

func inspectShows(w *world) {
	p, q := w.Process(), w.Process()
	require.Equal(w, rwlock.State{Name: "n"}, withoutMasters(w.Inspect("n")))

	first := p.Take("n", rwlock.Read, rwlock.WithMeta("one"))
	second := q.Take("n", rwlock.Read, rwlock.WithMeta("two words"))
	third := q.Queue("n", rwlock.Write, rwlock.WithMeta(""))
	fourth := p.Queue("n", rwlock.Read, rwlock.WithMeta("four"))

	before := w.Keys()
	s := w.Inspect("n")
	require.Equal(w, before, w.Keys())
	require.Equal(w, "n", s.Name)
	require.Equal(w, rwlock.Read, s.Mode)
	require.Equal(w, second.Token(), s.Token)
	require.Equal(w, map[string]string{first.Owner(): "one", second.Owner(): "two words"}, readersShown(w, s))
	require.Len(w, s.Waiters, 2)
	for i, waiter := range s.Waiters {
		require.Equal(w, []rwlock.Mode{rwlock.Write, rwlock.Read}[i], waiter.Mode)
		require.Equal(w, []string{"", "four"}[i], waiter.Meta)
		require.Len(w, waiter.Hold, 26)
	}
	require.Len(w, s.Masters, 1)
	require.NoError(w, s.Masters[0].Err)
	require.Equal(w, s.Holders, s.Masters[0].Holders)
	require.Equal(w, s.Waiters, s.Masters[0].Waiters)
	require.NotEmpty(w, s.Masters[0].Addr)

	w.Release(first, second)
	writer := third.Granted()
	require.Equal(w, s.Waiters[0].Owner, writer.Owner())
	s = w.Inspect("n")
	require.Equal(w, rwlock.Write, s.Mode)
	require.Equal(w, writer.Token(), s.Token)
	last := fourth.GrantedAfter(writer)
	w.Release(last)
	require.Equal(w, rwlock.State{Name: "n", Token: last.Token()}, withoutMasters(w.Inspect("n")))
}

func withoutMasters(s rwlock.State) rwlock.State {
	s.Masters = nil
	return s
}

func statsCount(w *world) {
	p, q := w.Process(), w.Process()
	require.Equal(w, rwlock.Stats{}, p.Stats())
	a := p.Take("a", rwlock.Write)
	b := p.Take("b", rwlock.Read)
	require.Equal(w, rwlock.Stats{Held: 2, Acquired: 2}, p.Stats())

	waiting := q.Queue("a", rwlock.Write)
	w.Eventually("the waiter is counted", func() bool { return q.Stats() == rwlock.Stats{Waiting: 1} })
	handed := waiting.GrantedAfter(a)
	s := q.Stats()
	s.Renewed = 0 // the hand-off is confirmed by a renewal soon
	if w.Group != nil {
		s.HandedOff = 1 // subscribing takes longer there: the first waiter may learn of it by asking
	}
	require.Equal(w, rwlock.Stats{Held: 1, Acquired: 1, Contended: 1, HandedOff: 1}, s)

	require.NoError(w, b.Renew(w.Ctx))
	if renewed := p.Stats().Renewed; w.Mini != nil {
		require.EqualValues(w, 1, renewed)
	} else {
		require.Positive(w, renewed) // a third of the TTL may have gone by
	}
	require.ErrorIs(w, errorOf(p.TryLock(w.Ctx, "a")), rwlock.ErrNotAcquired)
	w.FlushAll()
	w.UntilOver(b)
	w.UntilOver(handed)
	s = p.Stats()
	require.Equal(w, rwlock.Stats{
		Acquired: 2, Failed: rwlock.FailedStats{Contended: 1}, Lost: rwlock.LostStats{Gone: 1}, Renewed: s.Renewed,
	}, s)
	require.EqualValues(w, 1, q.Stats().Lost.Total())
	require.Zero(w, q.Stats().Held)
}

func closeEndsAll(w *world) {
	p, q := w.Process(), w.Process()
	held := []*rwlock.Lease{p.Take("a", rwlock.Write), p.Take("b", rwlock.Read), p.Take("b", rwlock.Read)}
	other := q.Take("c", rwlock.Write)
	waiting := []*pending{p.Queue("c", rwlock.Write), p.Queue("c", rwlock.Read)}
	next := q.Queue("a", rwlock.Write)

	require.NoError(w, p.Close())
	for _, a := range waiting {
		require.ErrorIs(w, a.Failed(), rwlock.ErrClosed)
	}
	for _, lease := range held {
		require.ErrorIs(w, lease.Err(), rwlock.ErrReleased)
		w.Release(lease)
	}
	require.Empty(w, w.Inspect("b").Holders, "Close waits for the releases")
	require.Empty(w, w.Inspect("c").Waiters)
	w.Release(next.Granted(), other)
	for _, mode := range bothModes {
		require.ErrorIs(w, p.Acquire(w.Ctx, "a", mode).Failed(), rwlock.ErrClosed)
		require.ErrorIs(w, errorOf(p.Try("a", mode)), rwlock.ErrClosed)
	}
	require.NoError(w, p.Close(), "again")
	require.Zero(w, p.Stats().Held+p.Stats().Waiting)
	w.OnlyTokensLeft()
}

// reported are the kinds of the events and their locks.
func reported(t *testkit.Trace) (all []string) {
	for _, e := range t.Events() {
		all = append(all, e.What+" "+e.Name)
	}
	return all
}

func traceTells(w *world) {
	var d testkit.Trace
	has := func(event string) func() bool { return func() bool { return slices.Contains(reported(&d), event) } }
	p := w.Process(d.Option())
	q := w.Process(rwlock.WithTrace(&rwlock.Trace{})) // every function may be nil
	held := q.Take("a", rwlock.Write)
	waiting := p.Queue("a", rwlock.Read)
	lease := waiting.GrantedAfter(held)
	require.NoError(w, lease.Renew(w.Ctx))
	w.Eventually("the renewal is told", has("renewed a"))
	w.Release(lease)
	w.Eventually("the release is told", has("released a"))
	require.Equal(w, []string{"waiting a", "acquired a", "renewed a", "released a"}, slices.Compact(reported(&d)))
	acquired := d.Last("acquired")
	require.Zero(w, d.Last("waiting").Token)
	require.Equal(w, rwlock.Read, acquired.Mode)
	require.Equal(w, lease.Owner(), acquired.Owner)
	require.Len(w, acquired.Hold, 26)
	require.Equal(w, lease.Token(), acquired.Token)
	require.Equal(w, acquired.Hold, d.Last("released").Hold)

	lost := p.Take("b", rwlock.Write)
	w.FlushAll()
	w.Eventually("the loss is told", has("lost b"))
	require.Equal(w, lost.Err(), error(d.Last("lost").Loss))
	require.Equal(w, lost.Token(), d.Last("lost").Token)
}

func loggerHears(w *world) {
	var book testkit.Log
	p, q := w.Process(book.Option()), w.Process()
	held := q.Take("quiet", rwlock.Write)
	waiting := p.Queue("quiet", rwlock.Write)
	lease := waiting.GrantedAfter(held)
	require.NoError(w, lease.Renew(w.Ctx))
	w.Release(lease)
	require.Empty(w, book.Records(""))

	lost := p.Take("gone", rwlock.Write)
	w.FlushAll()
	w.UntilOver(lost)
	w.Eventually("the loss is logged", func() bool { return len(book.About("gone")) > 0 })
	for i, r := range book.About("gone") { // where the machine was too busy for a renewal that comes first
		require.Equal(w, slog.LevelWarn, r.Level)
		require.True(w, i == 0 || w.Mini == nil, "told twice: %v", r)
	}

	cut := p.Take("cut", rwlock.Write)
	p.Die()
	w.UntilOver(cut)
	w.Eventually("failing renewals and the loss are logged", func() bool { return len(book.About("cut")) >= 2 })
	for _, r := range book.About("cut") {
		require.Equal(w, slog.LevelWarn, r.Level)
	}
	p.Restore(0) // Close gives back what is lost, too
}

func severalTogether(w *world) {
	var trace testkit.Trace
	p, q := w.Process(trace.Option()), w.Process()
	names := []string{"c", "a", "b"}
	all := expect.NoError(p.LockAll(w.Ctx, rwlock.Writes(names...))).In(w)
	ctx := all.Context(w.Ctx)
	for i, lease := range all.Leases() {
		require.Equal(w, names[i], lease.Name(), "the order of the caller")
		require.Equal(w, rwlock.Write, lease.Mode())
		require.Equal(w, lease.Fence(), fenceOf(w, ctx, names[i]))
		require.ErrorIs(w, errorOf(q.TryLock(w.Ctx, names[i])), rwlock.ErrNotAcquired)
		require.ErrorIs(w, errorOf(p.Lock(ctx, names[i])), rwlock.ErrNested)
	}
	require.NoError(w, all.Err())
	require.NoError(w, ctx.Err())

	require.NoError(w, all.Release(w.Ctx))
	require.ErrorIs(w, all.Err(), rwlock.ErrReleased)
	require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
	w.UntilClosed(all.Done())
	require.NoError(w, all.Release(w.Ctx), "nothing is left to release")
	for _, name := range names {
		require.True(w, isFree(w, name))
		w.Eventually("both events", func() bool { return len(trace.Events(name)) == 2 })
		require.Equal(w, "acquired", trace.Events(name)[0].What)
		require.Equal(w, "released", trace.Events(name)[1].What)
	}
	require.Equal(w, uint64(3), p.Stats().Acquired)
	require.Zero(w, p.Stats().Held)
}

func severalReaders(w *world) {
	p, q := w.Process(), w.Process()
	names := []string{"a", "b", "c"}
	first := expect.NoError(p.LockAll(w.Ctx, rwlock.Reads(names...))).In(w)
	second := expect.NoError(q.LockAll(w.Ctx, rwlock.Reads(names...))).In(w)
	third := expect.NoError(p.TryLockAll(w.Ctx, rwlock.Reads(names...))).In(w)
	c := takeAll(w.Process(), w.Ctx, rwlock.Writes(names...))
	w.UntilWaiting("a", 1)
	for _, all := range []*rwlock.MultiLease{first, second, third} {
		require.NoError(w, all.Err())
		require.NoError(w, all.Release(w.Ctx))
	}
	require.NoError(w, c.granted(w).Release(w.Ctx))
}
