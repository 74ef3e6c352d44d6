package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

type contextKey string

// held is what contexts can be made of: a lease, or the section of an RWMutex.
type held struct {
	context func(context.Context) context.Context
	ends    func() int
	release func()
}

// everyHeld runs a test with a lease, and with readers of an RWMutex.
func everyHeld(t *testing.T, test func(w *world, h held)) {
	subtestInFakeTime(t, "lease", func(w *world) {
		lease := w.Process().Take("n", rwlock.Read)
		ends := func() int { return rwlock.LeaseEnds(lease) }
		test(w, held{lease.Context, ends, func() { w.Release(lease) }})
	})
	subtestInFakeTime(t, "RWMutex", withMutex(func(w *world, _ *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.RLock(w.Ctx))
		ends := func() int { return rwlock.Ends(mu) }
		test(w, held{mu.Context, ends, func() { require.NoError(w, mu.RUnlock(w.Ctx)) }})
	}))
}

// However many contexts are made, those whose parents end together share one end; a parent that has ended leaves none.
func TestContextsDoNotPileUp(t *testing.T) {
	everyHeld(t, func(w *world, h held) {
		server, stop := context.WithCancel(w.Ctx)
		defer stop()
		for i := range 1000 {
			_ = h.context(context.Background())
			_ = h.context(server)
			_ = h.context(context.WithValue(server, contextKey("request"), i))
			_ = h.context(context.WithValue(context.Background(), contextKey("request"), i))
			request, cancel := context.WithTimeout(server, time.Hour)
			require.NoError(w, h.context(request).Err())
			cancel()
		}
		w.Settle()
		require.Equal(w, 2, h.ends(), "of those without an end, and of the server")
		h.release()
	})
}

// A context ends with its parent or with what was held, with the cause of that, and so do its children.
func TestContextsEndWithTheParentOrTheHold(t *testing.T) {
	everyHeld(t, func(w *world, h held) {
		withParent, cancel := context.WithCancelCause(w.Ctx)
		ctx, other := h.context(withParent), h.context(w.Ctx)
		for _, value := range []string{"first", "second"} { // which share an end
			request := h.context(context.WithValue(withParent, contextKey("request"), value))
			require.Equal(w, value, request.Value(contextKey("request")))
		}
		require.Nil(w, ctx.Value(contextKey("request")))
		soon, _ := h.context(w.Soon(time.Hour)).Deadline()
		require.Equal(w, time.Hour, time.Until(soon), "the deadline of its own parent")
		child, stop := context.WithCancel(ctx)
		defer stop()
		var grandchild context.Context
		before, many := runtime.NumGoroutine(), 500
		for range many {
			grandchild, stop = context.WithTimeout(h.context(context.Background()), time.Hour)
			defer stop()
		}
		require.Less(w, runtime.NumGoroutine(), before+many)

		cause := context.DeadlineExceeded
		cancel(cause)
		require.ErrorIs(w, ctx.Err(), context.Canceled)
		require.ErrorIs(w, child.Err(), context.Canceled)
		require.Equal(w, cause, context.Cause(ctx))
		require.Equal(w, cause, context.Cause(child))
		require.NoError(w, other.Err())
		require.NoError(w, context.Cause(other))

		h.release()
		for _, ended := range []context.Context{other, grandchild} {
			require.ErrorIs(w, ended.Err(), context.Canceled)
			require.ErrorIs(w, context.Cause(ended), rwlock.ErrReleased)
			select {
			case <-ended.Done():
			default:
				require.Fail(w, "not done")
			}
		}
		require.Equal(w, cause, context.Cause(ctx), "it had ended before")
	})
}

type (
	work   = func(context.Context) error
	doForm func(l *rwlock.Locker, ctx context.Context, name string, fn work) error
)

// doForms are the calls that run work under a lock.
var doForms = map[string]doForm{
	"Do":  func(l *rwlock.Locker, ctx context.Context, name string, fn work) error { return l.Do(ctx, name, fn) },
	"RDo": func(l *rwlock.Locker, ctx context.Context, name string, fn work) error { return l.RDo(ctx, name, fn) },
	"TryDo": func(l *rwlock.Locker, ctx context.Context, name string, fn work) error {
		_, err := l.TryDo(ctx, name, fn)
		return err
	},
	"RWMutex.Do": func(l *rwlock.Locker, ctx context.Context, name string, fn work) error {
		return l.RWMutex(name).Do(ctx, fn)
	},
	"RWMutex.RDo": func(l *rwlock.Locker, ctx context.Context, name string, fn work) error {
		return l.RWMutex(name).RDo(ctx, fn)
	},
	"TryRDo": func(l *rwlock.Locker, ctx context.Context, name string, fn work) error {
		_, err := l.TryRDo(ctx, name, fn)
		return err
	},
}

// A caller that repeats work on ErrLost has to know whether the work was done.
func TestCompleted(t *testing.T) {
	failure := errors.New("the work failed")
	eachInFakeTime(t, doForms, func(w *world, do doForm) {
		p := w.Process()
		lose := func(outcome func(ctx context.Context) error) error {
			return do(p.Locker, w.Ctx, "n", func(ctx context.Context) error {
				w.FlushAll()
				<-ctx.Done()
				return outcome(ctx)
			})
		}
		err := lose(func(context.Context) error { return nil })
		require.ErrorIs(w, err, rwlock.ErrLost)
		require.True(w, rwlock.Completed(err), "%v", err)
		require.True(w, rwlock.Completed(fmt.Errorf("charge: %w", err)))
		require.ErrorContains(w, err, "the work had returned without an error")
		require.Equal(w, rwlock.ReasonGone, testkit.As[*rwlock.LostError](w, err).Reason)

		err = lose(func(context.Context) error { return failure })
		expect.Fails(w, err, rwlock.ErrLost, failure)
		require.False(w, rwlock.Completed(err))

		err = lose(context.Cause)
		require.ErrorIs(w, err, rwlock.ErrLost)
		require.False(w, rwlock.Completed(err), "it was cut short, and says so by its loss")

		require.False(w, rwlock.Completed(do(p.Locker, w.Ctx, "n", func(context.Context) error { return failure })))
		require.False(w, rwlock.Completed(do(p.Locker, w.Ctx, "n", func(context.Context) error { return nil })))
	})
}

// What was said of a section inside is not said of the work around it.
func TestCompletedIsOfTheOutermostSection(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		var inner error
		err := p.Do(w.Ctx, "a", func(ctx context.Context) error {
			inner = p.Do(ctx, "b", func(ctx context.Context) error {
				w.FlushAll()
				<-ctx.Done()
				return nil
			})
			return inner
		})
		require.True(w, rwlock.Completed(inner))
		require.ErrorIs(w, err, inner)
		require.False(w, rwlock.Completed(err))
	}))
}

// taking are the ways to wait for a lock; each gives it back.
func taking(p *process) map[string]func(ctx context.Context, name string) error {
	none := func(context.Context) error { return nil }
	return map[string]func(ctx context.Context, name string) error{
		"Lock":  func(ctx context.Context, name string) error { return giveBack(p.Lock(ctx, name)) },
		"RLock": func(ctx context.Context, name string) error { return giveBack(p.RLock(ctx, name)) },
		"Do":    func(ctx context.Context, name string) error { return p.Do(ctx, name, none) },
		"RDo":   func(ctx context.Context, name string) error { return p.RDo(ctx, name, none) },
		"RWMutex.Lock": func(ctx context.Context, name string) error {
			return lockAndUnlock(ctx, p.RWMutex(name), (*rwlock.RWMutex).Lock, (*rwlock.RWMutex).Unlock)
		},
		"RWMutex.RLock": func(ctx context.Context, name string) error {
			return lockAndUnlock(ctx, p.RWMutex(name), (*rwlock.RWMutex).RLock, (*rwlock.RWMutex).RUnlock)
		},
	}
}

// giveBack releases what a call was granted.
func giveBack[L interface{ Release(context.Context) error }](lease L, err error) error {
	if err != nil {
		return err
	}
	return lease.Release(context.Background())
}

type ofMutex = func(*rwlock.RWMutex, context.Context) error

func lockAndUnlock(ctx context.Context, mu *rwlock.RWMutex, lock, unlock ofMutex) error {
	if err := lock(mu, ctx); err != nil {
		return err
	}
	return unlock(mu, ctx)
}

type section = func(ctx context.Context, name string, work work) error

// sections are the ways to be in a section, each of which ends with its work.
func sections(p *process) map[string]section {
	between := func(lock, unlock ofMutex) section {
		return func(ctx context.Context, name string, work work) error {
			mu := p.RWMutex(name)
			if err := lock(mu, ctx); err != nil {
				return err
			}
			defer func() { _ = unlock(mu, ctx) }()
			return work(mu.Context(ctx))
		}
	}
	return map[string]section{
		"Do":            func(ctx context.Context, name string, work work) error { return p.Do(ctx, name, work) },
		"RDo":           func(ctx context.Context, name string, work work) error { return p.RDo(ctx, name, work) },
		"RWMutex.Lock":  between((*rwlock.RWMutex).Lock, (*rwlock.RWMutex).Unlock),
		"RWMutex.RLock": between((*rwlock.RWMutex).RLock, (*rwlock.RWMutex).RUnlock),
	}
}

// Whoever waits for a lock inside its own section would wait for itself, for ever.
func TestWaitingInsideTheOwnSectionIsRefused(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		for around, section := range sections(p) {
			for entry, take := range taking(p) {
				require.NoError(w, section(w.Soon(w.TTL), "n", func(ctx context.Context) error {
					w.Settle() // a mutex gives back in the background
					calls := p.Link.Calls("EVALSHA")
					for _, inner := range []context.Context{ctx, context.WithoutCancel(ctx)} {
						err := take(inner, "n")
						require.ErrorIs(w, err, rwlock.ErrNested, "%s in %s", entry, around)
						require.NotErrorIs(w, err, rwlock.ErrNotAcquired)
						expect.Fails(w, err, `lock "n" is held for `, "reentrant")
					}
					w.Settle()
					require.Equal(w, calls, p.Link.Calls("EVALSHA"), "nothing is sent")
					require.NoError(w, take(ctx, "another"), "%s in %s", entry, around)
					_, err := p.TryLock(ctx, "n")
					require.ErrorIs(w, err, rwlock.ErrNotAcquired, "a single attempt does not wait: %s", around)
					return nil
				}), "%s in %s", entry, around)
			}
		}
		w.OnlyTokensLeft()
	}))
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

// Who waits for a lock of its own process is told so when the wait ends; who waits for another process is not.
func TestTheEndOfAWaitForOneselfSaysSo(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const question = "; this process itself: was the ctx of its section passed on?)"
		p, q := w.Process(), w.Process()
		w.Release(p.Take("n", rwlock.Write)) // no rest of it is taken for a hold
		for where, work := range sections(p) {
			require.NoError(w, work(w.Ctx, "n", func(context.Context) error {
				for how, take := range taking(p) {
					if err := take(w.Soon(time.Second), "n"); err != nil { // readers may share it
						require.ErrorContains(w, err, question, "%s inside %s", how, where)
						require.ErrorIs(w, err, context.DeadlineExceeded)
					}
				}
				brief := w.Soon(time.Second)
				require.ErrorContains(w, expect.ErrorOf(p.Lock(brief, "n", rwlock.WithMaxWait(time.Millisecond))), question)
				_, err := q.Lock(brief, "n")
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

// A parent context that lives as long as the process keeps nothing of the leases that were taken under it.
func TestLeaseContextsLeaveNothingInTheirParent(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		parent, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		heap := func() int64 { w.Pass(0); return liveHeap() }
		run := func(n int) {
			for range n {
				require.NoError(w, p.Do(parent, "a", func(context.Context) error { return nil }))
			}
		}
		run(200)
		before := heap()
		run(700)
		require.Less(w, heap()-before, int64(700*300), "bytes kept for 700 leases")
	}))
}

// To end contexts takes time, and the RWMutex is not kept for that; whoever waits is let in after it.
func TestContextsEndWithoutTheMutex(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, _ *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.RLock(w.Ctx))
		parent := &watchedParent{Context: w.Ctx}
		ctx := mu.Context(parent)
		writer := w.Call(w.Ctx, mu.Lock)
		asked := 0
		parent.asked = func() {
			asked++
			require.False(w, rwlock.IsBusy(mu))
			require.True(w, writer.IsWaiting())
			require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired)
			require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrNotHeld)
			require.Zero(w, mu.Token())
		}
		require.NoError(w, mu.RUnlock(w.Ctx))
		require.Positive(w, asked)
		require.Error(w, ctx.Err())
		require.NoError(w, writer.Result())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	}))
}

// watchedParent tells when a child that ends is taken out of it: that asks for Done.
type watchedParent struct {
	context.Context
	asked func()
}

func (c *watchedParent) Done() <-chan struct{} {
	if c.asked != nil {
		c.asked()
	}
	return c.Context.Done()
}
