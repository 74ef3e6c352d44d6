package redlock_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// How far proposals and blocks run ahead of the masters' clocks, and what blocks have at the least.
const (
	proposalLead = 50 * time.Millisecond
	blockLead    = 800 * time.Millisecond
	blockMin     = 16
)

// A lock whose tokens are used up faster than the clock runs is had again in one round trip, and needs no raise, also
// where the masters' clocks differ: each would cut a block off at its own.
func TestBlocksAheadOfTheClock(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const trip = 2 * time.Millisecond
		for i, m := range w.Minis {
			m.Skew(time.Duration(i) * 20 * time.Millisecond)
		}
		p := w.ProcessAt(trip / 2)
		sent := w.Requests()
		p.Section("warm-up")
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour)) // it is given back for a new block only
		require.NoError(w, mu.Lock(w.Ctx))
		require.NoError(w, mu.Unlock(w.Ctx))
		last := mu.Token()
		for range 1_500_000 {
			began := time.Now()
			if err := mu.TryLock(w.Ctx); err != nil || time.Since(began) > 2*trip || mu.Token() <= last {
				w.Fatalf("%v after %v, token %d after %d", err, time.Since(began), mu.Token(), last)
			}
			last = mu.Token()
			if err := mu.Unlock(w.Ctx); err != nil {
				w.Fatal(err)
			}
		}
		ahead := time.Duration(last-fencing.Token(time.Now().UnixMicro())) * time.Microsecond
		require.InDelta(w, blockLead, ahead, float64(100*time.Millisecond), "it has run ahead as far as it may")
		require.Greater(w, sent.Counts()[scripts.Acquire], 10)
		require.Zero(w, sent.Counts()[scripts.Raise])
	})
}

// Blocks are as large as ever where the clocks of the processes are not the masters': a lock that lingers is taken
// again without a command.
func TestBlocksWhereClocksDiffer(t *testing.T) {
	for name, c := range map[string]struct{ own, others time.Duration }{
		"its own is behind":       {own: -time.Hour},
		"its own is ahead":        {own: 600 * time.Millisecond},
		"another's is ahead":      {others: 600 * time.Millisecond},
		"one behind, one ahead":   {own: -600 * time.Millisecond, others: 600 * time.Millisecond},
		"another's is far ahead":  {others: time.Hour},
		"both are in time":        {},
		"another's is far behind": {others: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				skew, sections := 20*time.Millisecond, 1000
				if c.others > blockLead { // as far ahead as the masters let it be, each by its own clock
					skew, sections = 0, blockMin-2 // one is left for a reader that upgrades
				}
				for i, m := range w.Minis {
					m.Skew(time.Duration(i) * skew)
				}
				p, q := w.Process(ahead(c.own)), w.Process(ahead(c.others))
				sent := w.Requests()
				p.Section("warm-up")
				mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
				for _, locker := range []*process{q, p} { // p sees where q's token is
					lease, err := locker.Lock(w.Ctx, "n")
					require.NoError(w, err)
					w.Release(lease)
				}
				require.NoError(w, mu.Lock(w.Ctx))
				require.NoError(w, mu.Unlock(w.Ctx))
				before := sent.Counts()
				for range sections - 1 {
					require.NoError(w, mu.Lock(w.Ctx))
					require.NoError(w, mu.Unlock(w.Ctx))
				}
				require.Equal(w, before, sent.Counts(), "no command")
			})
		})
	}
}

// What the blocks of one lock use up leaves room for those of others.
func TestBlocksOfOneLockLeaveRoomForOthers(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessAt(0) // nothing takes time, so the clock does not catch up
		sent := w.Requests()
		p.Section("warm-up")
		busy, other := p.RWMutex("busy", rwlock.WithLinger(time.Hour)), p.RWMutex("other", rwlock.WithLinger(time.Hour))
		for range (blockLead-proposalLead)/time.Microsecond + 100*blockMin { // as far ahead as it may be, and beyond
			if err := errors.Join(busy.Lock(w.Ctx), busy.Unlock(w.Ctx)); err != nil {
				w.Fatal(err)
			}
		}
		require.NoError(w, other.Lock(w.Ctx))
		require.NoError(w, other.Unlock(w.Ctx))
		before := sent.Counts()
		for range 1000 {
			require.NoError(w, other.Lock(w.Ctx))
			require.NoError(w, other.Unlock(w.Ctx))
		}
		require.Equal(w, before, sent.Counts(), "no command")
	})
}

// A master that has missed the grants of late is proposed a token beyond them, by whoever has seen it: by the holder
// that converts what it has, and by the one whose release lets the next in. So it agrees with the others at once.
func TestWhoHasHeldALockProposesATokenBeyondItsOwn(t *testing.T) {
	for name, grant := range map[string]func(t *testing.T, mu, other *rwlock.RWMutex, forget func()){
		"downgrade": func(t *testing.T, mu, _ *rwlock.RWMutex, forget func()) {
			forget()
			require.NoError(t, mu.Downgrade(t.Context()))
		},
		"release": func(t *testing.T, mu, other *rwlock.RWMutex, forget func()) {
			entered := make(chan error, 1)
			go func() { entered <- other.Lock(t.Context()) }()
			synctest.Wait()
			forget()
			require.NoError(t, mu.Unlock(t.Context()))
			require.NoError(t, <-entered)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				p, q := w.ProcessAt(0), w.ProcessAt(0)
				sent := w.Requests()
				p.Section("warm-up")
				q.Section("warm-up")
				mu := p.RWMutex("n")
				require.NoError(w, mu.Lock(w.Ctx))
				before := sent.Counts() // when all masters have granted it
				older := strconv.FormatUint(uint64(mu.Token())-1, 10)
				grant(w.T, mu, q.RWMutex("n"), func() { w.Minis[0].Miniredis().HSet("fencelock:{n}", "t", older, "tw", older) })
				require.Equal(w, before[scripts.Raise], sent.Counts()[scripts.Raise], "it was not raised")
			})
		})
	}
}
