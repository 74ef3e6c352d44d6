package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// taking are the ways to wait for a lock; each gives it back.
func taking(p *process) map[string]func(ctx context.Context, name string) error {
	none := func(context.Context) error { return nil }
	released := func(lease *rwlock.Lease, err error) error {
		if err != nil {
			return err
		}
		return lease.Release(context.Background())
	}
	return map[string]func(ctx context.Context, name string) error{
		"Lock":  func(ctx context.Context, name string) error { return released(p.Lock(ctx, name)) },
		"RLock": func(ctx context.Context, name string) error { return released(p.RLock(ctx, name)) },
		"Do":    func(ctx context.Context, name string) error { return p.Do(ctx, name, none) },
		"RDo":   func(ctx context.Context, name string) error { return p.RDo(ctx, name, none) },
		"RWMutex.Lock": func(ctx context.Context, name string) error {
			mu := p.RWMutex(name)
			if err := mu.Lock(ctx); err != nil {
				return err
			}
			return mu.Unlock(ctx)
		},
		"RWMutex.RLock": func(ctx context.Context, name string) error {
			mu := p.RWMutex(name)
			if err := mu.RLock(ctx); err != nil {
				return err
			}
			return mu.RUnlock(ctx)
		},
	}
}

// sections are the ways to be in a section, each of which ends with its work.
func sections(p *process) map[string]func(ctx context.Context, name string, work func(context.Context) error) error {
	return map[string]func(ctx context.Context, name string, work func(context.Context) error) error{
		"Do": func(ctx context.Context, name string, work func(context.Context) error) error {
			return p.Do(ctx, name, work)
		},
		"RDo": func(ctx context.Context, name string, work func(context.Context) error) error {
			return p.RDo(ctx, name, work)
		},
		"RWMutex.Lock": func(ctx context.Context, name string, work func(context.Context) error) error {
			mu := p.RWMutex(name)
			if err := mu.Lock(ctx); err != nil {
				return err
			}
			defer func() { _ = mu.Unlock(ctx) }()
			return work(mu.Context(ctx))
		},
		"RWMutex.RLock": func(ctx context.Context, name string, work func(context.Context) error) error {
			mu := p.RWMutex(name)
			if err := mu.RLock(ctx); err != nil {
				return err
			}
			defer func() { _ = mu.RUnlock(ctx) }()
			return work(mu.Context(ctx))
		},
	}
}

// Whoever waits for a lock inside its own section would wait for itself, for ever.
func TestWaitingInsideTheOwnSectionIsRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		for around, section := range sections(p) {
			for entry, take := range taking(p) {
				ctx, cancel := context.WithTimeout(w.Ctx, w.TTL)
				require.NoError(w, section(ctx, "n", func(ctx context.Context) error {
					w.Settle() // a mutex gives back in the background
					calls := p.Link.Calls("EVALSHA")
					for _, inner := range []context.Context{ctx, context.WithoutCancel(ctx)} {
						err := take(inner, "n")
						require.ErrorIs(w, err, rwlock.ErrNested, "%s in %s", entry, around)
						require.NotErrorIs(w, err, rwlock.ErrNotAcquired)
						require.ErrorContains(w, err, `lock "n" is held for `)
						require.ErrorContains(w, err, "reentrant")
					}
					w.Settle()
					require.Equal(w, calls, p.Link.Calls("EVALSHA"), "nothing is sent")
					require.NoError(w, take(ctx, "another"), "%s in %s", entry, around)
					return nil
				}), "%s in %s", entry, around)
				cancel()
			}
		}
		w.OnlyTokensLeft()
	})
}

// The section is found behind those of other locks, other lockers and foreign fences of the same name.
func TestTheSectionIsFoundBehindOthers(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, other := w.Process(), w.Process(rwlock.WithPrefix("other"))
		err := p.Do(w.Ctx, "n", func(ctx context.Context) error {
			return other.Do(ctx, "n", func(ctx context.Context) error {
				return p.Do(ctx, "m", func(ctx context.Context) error {
					ctx = fencing.NewContext(ctx, fencing.Fence{Resource: "n", Token: 7, Mode: fencing.Write})
					return p.RDo(ctx, "n", func(context.Context) error { panic("entered") })
				})
			})
		})
		require.ErrorIs(w, err, rwlock.ErrNested)
	})
}

// A fence proves nothing of this locker: only a lease of its own that still stands is in the way of itself.
func TestAFenceAloneRefusesNobody(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process(rwlock.WithPrefix("other"))
		foreign := fencing.NewContext(w.Ctx, fencing.Fence{Resource: "n", Token: 7, Mode: fencing.Write})
		ofOther := q.Take("n", rwlock.Write).Context(w.Ctx)
		over := p.Take("n", rwlock.Write)
		ofReleased := context.WithoutCancel(over.Context(w.Ctx))
		w.Release(over)
		lost := p.Take("n", rwlock.Write)
		ofLost := context.WithoutCancel(lost.Context(w.Ctx))
		w.FlushAll()
		require.ErrorIs(w, lost.Renew(w.Ctx), rwlock.ErrLost)
		for what, ctx := range map[string]context.Context{
			"a fence from elsewhere": foreign, "another locker's": ofOther, "released": ofReleased, "lost": ofLost,
		} {
			for entry, take := range taking(p) {
				require.NoError(w, take(ctx, "n"), "%s: %s", what, entry)
			}
		}
	})
}

// A single attempt cannot wait for itself: it reports what it finds.
func TestATryInsideTheOwnSection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		for around, section := range sections(p) {
			require.NoError(w, section(w.Ctx, "n", func(ctx context.Context) error {
				_, err := p.TryLock(ctx, "n")
				require.ErrorIs(w, err, rwlock.ErrNotAcquired, around)
				require.ErrorIs(w, p.RWMutex("n").TryLock(ctx), rwlock.ErrNotAcquired, around)
				return nil
			}))
		}
		w.OnlyTokensLeft()
	})
}

// Who waits for a lock of its own process, as a function does that was given the outer context instead of that of the
// section, is told so when the wait ends. Who waits for another process is not, and neither is a single attempt.
func TestTheEndOfAWaitForOneselfSaysSo(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const question = "; this process itself: was the ctx of its section passed on?)"
		p, q := w.Process(), w.Process()
		w.Release(p.Take("n", rwlock.Write)) // no rest of it is taken for a hold
		for where, work := range sections(p) {
			require.NoError(w, work(w.Ctx, "n", func(context.Context) error {
				for how, take := range taking(p) {
					outer, cancel := context.WithTimeout(w.Ctx, time.Second)
					if err := take(outer, "n"); err != nil { // readers may share it
						require.ErrorContains(w, err, question, "%s inside %s", how, where)
						require.ErrorIs(w, err, context.DeadlineExceeded)
					}
					cancel()
				}
				brief, cancel := context.WithTimeout(w.Ctx, time.Second)
				defer cancel()
				_, err := p.Lock(brief, "n", rwlock.WithMaxWait(time.Millisecond))
				require.ErrorContains(w, err, question)
				_, err = q.Lock(brief, "n")
				require.ErrorIs(w, err, context.DeadlineExceeded)
				require.NotContains(w, err.Error(), "itself")
				_, err = p.TryLock(w.Ctx, "n")
				require.ErrorIs(w, err, rwlock.ErrNotAcquired)
				require.NotContains(w, err.Error(), "itself")
				return nil
			}), where)
		}
	})
}
