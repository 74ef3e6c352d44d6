package rwlock_test

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// readersShown returns what the holders in s said of themselves, by owner, and fails the test if they are no readers.
func (w *world) readersShown(s rwlock.State) map[string]string {
	shown := map[string]string{}
	for _, h := range s.Holders {
		shown[h.Owner] = h.Meta
		require.Equal(w.t, rwlock.Read, h.Mode)
		require.Equal(w.t, 1, h.Count)
		require.LessOrEqual(w.t, h.Remaining, w.ttl)
		require.Greater(w.t, h.Remaining, w.ttl/3)
		require.GreaterOrEqual(w.t, h.Held, time.Duration(0))
	}
	return shown
}

func inspectShows(w *world) {
	p, q := w.process(), w.process()
	require.Equal(w.t, rwlock.State{Name: "n"}, withoutMasters(w.inspect("n")))

	first := p.lock("n", rwlock.Read, rwlock.WithMeta("one"))
	second := q.lock("n", rwlock.Read, rwlock.WithMeta("two words"))
	third := q.queue("n", rwlock.Write, rwlock.WithMeta(""))
	fourth := p.queue("n", rwlock.Read, rwlock.WithMeta("four"))

	before := w.keys()
	s := w.inspect("n")
	require.Equal(w.t, before, w.keys())
	require.Equal(w.t, "n", s.Name)
	require.Equal(w.t, rwlock.Read, s.Mode)
	require.Equal(w.t, second.Token(), s.Token)
	require.Equal(w.t, map[string]string{first.Owner(): "one", second.Owner(): "two words"}, w.readersShown(s))
	require.Len(w.t, s.Waiters, 2)
	for i, waiter := range s.Waiters {
		require.Equal(w.t, []rwlock.Mode{rwlock.Write, rwlock.Read}[i], waiter.Mode)
		require.Equal(w.t, []string{"", "four"}[i], waiter.Meta)
		require.Len(w.t, waiter.Hold, 26)
	}
	require.Len(w.t, s.Masters, 1)
	require.NoError(w.t, s.Masters[0].Err)
	require.Equal(w.t, s.Holders, s.Masters[0].Holders)
	require.Equal(w.t, s.Waiters, s.Masters[0].Waiters)
	require.NotEmpty(w.t, s.Masters[0].Addr)

	w.release(first, second)
	writer := third.granted()
	require.Equal(w.t, s.Waiters[0].Owner, writer.Owner())
	s = w.inspect("n")
	require.Equal(w.t, rwlock.Write, s.Mode)
	require.Equal(w.t, writer.Token(), s.Token)
	w.release(writer)
	last := fourth.granted()
	w.release(last)
	require.Equal(w.t, rwlock.State{Name: "n", Token: last.Token()}, withoutMasters(w.inspect("n")))
}

func withoutMasters(s rwlock.State) rwlock.State {
	s.Masters = nil
	return s
}

func statsCount(w *world) {
	p, q := w.process(), w.process()
	require.Equal(w.t, rwlock.Stats{}, p.Stats())
	a := p.lock("a", rwlock.Write)
	b := p.lock("b", rwlock.Read)
	require.Equal(w.t, rwlock.Stats{Held: 2, Acquired: 2}, p.Stats())

	waiting := q.queue("a", rwlock.Write)
	w.eventually("the waiter is counted", func() bool { return q.Stats() == rwlock.Stats{Waiting: 1} })
	w.release(a)
	handed := waiting.granted()
	s := q.Stats()
	s.Renewed = 0 // the hand-off is confirmed by a renewal soon
	if w.group != nil {
		s.HandedOff = 1 // subscribing takes longer there: the first waiter may learn of it by asking
	}
	require.Equal(w.t, rwlock.Stats{Held: 1, Acquired: 1, Contended: 1, HandedOff: 1}, s)

	require.NoError(w.t, b.Renew(w.ctx))
	if renewed := p.Stats().Renewed; w.mini != nil {
		require.EqualValues(w.t, 1, renewed)
	} else {
		require.Positive(w.t, renewed) // a third of the TTL may have gone by
	}
	_, err := p.TryLock(w.ctx, "a")
	require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
	w.flushAll()
	w.untilOver(b)
	w.untilOver(handed)
	s = p.Stats()
	require.Equal(w.t, rwlock.Stats{Acquired: 2, Lost: 1, Renewed: s.Renewed}, s)
	require.EqualValues(w.t, 1, q.Stats().Lost)
	require.Zero(w.t, q.Stats().Held)
}

func closeEndsAll(w *world) {
	p, q := w.process(), w.process()
	held := []*rwlock.Lease{p.lock("a", rwlock.Write), p.lock("b", rwlock.Read), p.lock("b", rwlock.Read)}
	other := q.lock("c", rwlock.Write)
	waiting := []*pending{p.queue("c", rwlock.Write), p.queue("c", rwlock.Read)}
	next := q.queue("a", rwlock.Write)

	require.NoError(w.t, p.Close())
	for _, a := range waiting {
		require.ErrorIs(w.t, a.failed(), rwlock.ErrClosed)
	}
	for _, lease := range held {
		require.ErrorIs(w.t, lease.Err(), rwlock.ErrReleased)
		require.NoError(w.t, lease.Release(w.ctx))
	}
	require.Empty(w.t, w.inspect("b").Holders, "Close waits for the releases")
	require.Empty(w.t, w.inspect("c").Waiters)
	w.release(next.granted(), other)
	for _, mode := range bothModes {
		require.ErrorIs(w.t, p.acquire(w.ctx, "a", mode).failed(), rwlock.ErrClosed)
		_, err := p.try("a", mode)
		require.ErrorIs(w.t, err, rwlock.ErrClosed)
	}
	require.NoError(w.t, p.Close(), "again")
	require.Zero(w.t, p.Stats().Held+p.Stats().Waiting)
	w.onlyTokensLeft()
}

// diary notes what a Trace is told.
type diary struct {
	mu     sync.Mutex
	events []string
	last   map[string]rwlock.TraceEvent
	loss   *rwlock.LostError
}

func (d *diary) note(what string) func(rwlock.TraceEvent) {
	return func(e rwlock.TraceEvent) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.events = append(d.events, what+" "+e.Name)
		if d.last == nil {
			d.last = map[string]rwlock.TraceEvent{}
		}
		d.last[what] = e
	}
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.events...)
}

func (d *diary) has(event string) func() bool {
	return func() bool {
		for _, e := range d.read() {
			if e == event {
				return true
			}
		}
		return false
	}
}

func traceTells(w *world) {
	var d diary
	p := w.process(rwlock.WithTrace(&rwlock.Trace{
		Waiting: d.note("waiting"), Acquired: d.note("acquired"), Renewed: d.note("renewed"), Released: d.note("released"),
		Lost: func(e rwlock.TraceEvent, loss *rwlock.LostError) { d.loss = loss; d.note("lost")(e) },
	}))
	q := w.process(rwlock.WithTrace(&rwlock.Trace{})) // every function may be nil
	held := q.lock("a", rwlock.Write)
	waiting := p.queue("a", rwlock.Read)
	w.release(held)
	lease := waiting.granted()
	require.NoError(w.t, lease.Renew(w.ctx))
	w.eventually("the renewal is told", d.has("renewed a"))
	w.release(lease)
	w.eventually("the release is told", d.has("released a"))
	require.Equal(w.t, []string{"waiting a", "acquired a", "renewed a", "released a"}, unique(d.read()))
	require.Zero(w.t, d.last["waiting"].Token)
	require.Equal(w.t, rwlock.Read, d.last["acquired"].Mode)
	require.Equal(w.t, lease.Owner(), d.last["acquired"].Owner)
	require.Len(w.t, d.last["acquired"].Hold, 26)
	require.Equal(w.t, lease.Token(), d.last["acquired"].Token)
	require.Equal(w.t, d.last["acquired"].Hold, d.last["released"].Hold)

	lost := p.lock("b", rwlock.Write)
	w.flushAll()
	w.eventually("the loss is told", d.has("lost b"))
	require.Equal(w.t, lost.Err(), error(d.loss))
	require.Equal(w.t, lost.Token(), d.last["lost"].Token)
}

// unique leaves one of several equal events in a row.
func unique(events []string) (all []string) {
	for _, e := range events {
		if len(all) == 0 || all[len(all)-1] != e {
			all = append(all, e)
		}
	}
	return all
}

// logbook is a slog.Handler that keeps what it is told.
type logbook struct {
	mu      sync.Mutex
	records []slog.Record
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logbook) WithGroup(string) slog.Handler            { return b }
func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, r)
	return nil
}

// about returns the records with that value of the attribute lock.
func (b *logbook) about(name string) (found []slog.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.records {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "lock" && a.Value.String() == name {
				found = append(found, r)
			}
			return true
		})
	}
	return found
}

func loggerHears(w *world) {
	var book logbook
	p, q := w.process(rwlock.WithTTL(w.short), rwlock.WithLogger(slog.New(&book))), w.process()
	held := q.lock("quiet", rwlock.Write)
	waiting := p.queue("quiet", rwlock.Write)
	w.release(held)
	lease := waiting.granted()
	require.NoError(w.t, lease.Renew(w.ctx))
	w.release(lease)
	require.Empty(w.t, book.records)

	lost := p.lock("gone", rwlock.Write)
	w.flushAll()
	w.untilOver(lost)
	w.eventually("the loss is logged", func() bool { return len(book.about("gone")) > 0 })
	for i, r := range book.about("gone") { // where the machine was too busy for a renewal that comes first
		require.Equal(w.t, slog.LevelWarn, r.Level)
		require.True(w.t, i == 0 || w.mini == nil, "told twice: %v", r)
	}

	cut := p.lock("cut", rwlock.Write)
	p.die()
	w.untilOver(cut)
	w.eventually("failing renewals and the loss are logged", func() bool { return len(book.about("cut")) >= 2 })
	for _, r := range book.about("cut") {
		require.Equal(w.t, slog.LevelWarn, r.Level)
	}
}
