package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

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
	for form, do := range doForms {
		t.Run(form, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
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
				lost, ok := errors.AsType[*rwlock.LostError](err)
				require.True(w, ok)
				require.Equal(w, rwlock.ReasonGone, lost.Reason)

				err = lose(func(context.Context) error { return failure })
				require.ErrorIs(w, err, rwlock.ErrLost)
				require.ErrorIs(w, err, failure)
				require.False(w, rwlock.Completed(err))

				err = lose(context.Cause)
				require.ErrorIs(w, err, rwlock.ErrLost)
				require.False(w, rwlock.Completed(err), "it was cut short, and says so by its loss")

				require.False(w, rwlock.Completed(do(p.Locker, w.Ctx, "n", func(context.Context) error { return failure })))
				require.False(w, rwlock.Completed(do(p.Locker, w.Ctx, "n", func(context.Context) error { return nil })))
			})
		})
	}
}

// What was said of a section inside is not said of the work around it.
func TestCompletedIsOfTheOutermostSection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
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
	})
}
