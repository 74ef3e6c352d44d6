package rwlock_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lock whose limit is noticed by one who comes, before its own timer does, is given back all the same: its holder may
// never unlock. In real time, where a timer comes a little late; so one of many rounds is enough.
func TestALimitThatIsNoticedBeforeItsTimerGivesTheLockBack(t *testing.T) {
	onServer(t, testredis.Start(t), func(w *world) {
		const bound = 20 * time.Millisecond
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("n", rwlock.WithMaxHold(bound))
		for range 20 {
			require.NoError(w, mu.Lock(w.Ctx))
			began := time.Now()
			for time.Since(began) < 2*bound {
				require.ErrorIs(w, mu.TryLock(w.Ctx), rwlock.ErrNotAcquired)
			}
			w.Release(q.Take("n", rwlock.Write))
			require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		}
	})
}

// interruptions is a clock of which one reading can take so long that something happens meanwhile.
type interruptions struct {
	start time.Time
	next  atomic.Pointer[func()] // called once, by the next reading
}

// option has a locker read its time there.
func (c *interruptions) option() rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) {
		l.Clock = func() (time.Duration, time.Time) {
			if f := c.next.Swap(nil); f != nil {
				(*f)()
			}
			now := time.Now()
			return now.Sub(c.start), now
		}
	})
}

// A limit that is reached while its holder unlocks is a loss, and whoever is next in the process has a lease of its
// own: the one that there was has been given back.
func TestALimitThatIsReachedWhileTheLockIsUnlocked(t *testing.T) {
	inFakeTime(t, func(w *world) {
		clock := &interruptions{start: time.Now()}
		p, q := w.Process(clock.option()), w.Process()
		mu := p.RWMutex("n", rwlock.WithMaxHold(time.Second))
		require.NoError(w, mu.Lock(w.Ctx))
		ctx := mu.Context(w.Ctx)
		next := w.Call(w.Ctx, mu.Lock)
		reach := func() { <-ctx.Done() }
		// Unlock reads the clock, looks at the limit, and reads the clock again when it asks for the lease.
		arm := func() { clock.next.Store(&reach) }
		clock.next.Store(&arm)
		require.Equal(w, rwlock.MaxHold, w.Loss(mu.Unlock(w.Ctx)).Reason)
		require.EqualValues(w, 1, p.Stats().Lost, "it is no release")
		require.NoError(w, next.Result())
		w.Settle()
		require.NoError(w, context.Cause(mu.Context(w.Ctx)))
		_, err := q.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	})
}

// The loss of a lease is logged and traced with the token that the section has shown to the storage, not with the last
// one of the block; after a conversion with the new one.
func TestALossOfAnRWMutexIsToldWithTheTokenOfItsSection(t *testing.T) {
	for name, c := range map[string]struct {
		lock, convert func(*rwlock.RWMutex, context.Context) error
	}{
		"a writer":                 {lock: (*rwlock.RWMutex).Lock},
		"a reader":                 {lock: (*rwlock.RWMutex).RLock},
		"a reader that upgraded":   {lock: (*rwlock.RWMutex).RLock, convert: (*rwlock.RWMutex).Upgrade},
		"a writer that downgraded": {lock: (*rwlock.RWMutex).Lock, convert: (*rwlock.RWMutex).Downgrade},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				var book testkit.Log
				var told []fencing.Token
				p := w.Process(book.Option(), rwlock.WithTrace(&rwlock.Trace{
					Lost: func(_ rwlock.TraceEvent, loss *rwlock.LostError) { told = append(told, loss.Token) },
				}))
				mu := p.RWMutex("n")
				require.NoError(w, c.lock(mu, w.Ctx))
				token := mu.Token()
				if c.convert != nil {
					require.NoError(w, c.convert(mu, w.Ctx))
					require.Greater(w, mu.Token(), token)
					token = mu.Token()
				}
				w.Command("FLUSHALL")
				w.Pass(w.TTL)
				require.Equal(w, []fencing.Token{token}, told)
				records := book.About("n")
				require.Len(w, records, 1)
				records[0].Attrs(func(a slog.Attr) bool {
					require.False(w, a.Key == "token" && a.Value.Uint64() != uint64(token), a.Value)
					return true
				})
			})
		})
	}
}

// The end of a section at its limit is a loss like any other: it is counted, logged and traced, with the token that the
// section had.
func TestALimitOfAnRWMutexIsToldAsALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var told []rwlock.LostError
		var book testkit.Log
		p := w.Process(book.Option(), rwlock.WithTrace(&rwlock.Trace{
			Lost:     func(_ rwlock.TraceEvent, loss *rwlock.LostError) { told = append(told, *loss) },
			Released: func(rwlock.TraceEvent) { w.Error("told as released") },
		}))
		mu := p.RWMutex("n", rwlock.WithMaxHold(time.Second))
		require.NoError(w, mu.Lock(w.Ctx))
		token := mu.Token()
		w.Pass(2 * time.Second)
		loss := w.Loss(mu.Unlock(w.Ctx))
		require.Equal(w, rwlock.LostError{Name: "n", Token: token, Reason: rwlock.MaxHold, Limit: time.Second}, *loss)
		w.Settle()
		require.Equal(w, []rwlock.LostError{*loss}, told)
		require.Len(w, book.About("n"), 1)
		require.EqualValues(w, 1, p.Stats().Lost)
		w.OnlyTokensLeft()
	})
}
