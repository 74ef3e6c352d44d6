package fencing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

func nothing(context.Context) error { return nil }

func TestWatermarkStory(t *testing.T) {
	var w fencing.Watermark
	ctx := t.Context()

	require.NoError(t, w.Do(ctx, write("a", 10), nothing))
	require.NoError(t, w.Do(ctx, write("a", 10), nothing), "a holder writes more than once")
	require.NoError(t, w.Do(ctx, read("a", 12), nothing))
	require.NoError(t, w.Do(ctx, read("a", 11), nothing), "readers never fence each other off")
	require.ErrorIs(t, w.Do(ctx, write("a", 10), nothing), fencing.ErrStale, "a newer reader has read")
	require.NoError(t, w.Derive(ctx, read("a", 10), nothing), "nothing newer has been written")
	require.NoError(t, w.Do(ctx, write("a", 13), nothing))
	require.ErrorIs(t, w.Do(ctx, read("a", 12), nothing), fencing.ErrStale)
	require.ErrorIs(t, w.Derive(ctx, read("a", 12), nothing), fencing.ErrStale, "an outdated cache fill")

	maxRead, maxWrite := w.Seen("a")
	require.EqualValues(t, 12, maxRead)
	require.EqualValues(t, 13, maxWrite)

	require.NoError(t, w.Do(ctx, write("b", 1), nothing), "another resource's tokens mean nothing here")
	maxRead, maxWrite = w.Seen("never")
	require.Zero(t, maxRead)
	require.Zero(t, maxWrite)
}

func TestWatermarkClaimBeforeTheFirstRead(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(read("a", 12)))
	require.ErrorIs(t, w.Do(t.Context(), write("a", 11), nothing), fencing.ErrStale)
	require.NoError(t, w.Claim(write("a", 13)))
	require.ErrorIs(t, w.Do(t.Context(), read("a", 12), nothing), fencing.ErrStale)
	require.ErrorIs(t, w.Claim(read("a", 12)), fencing.ErrStale)
	require.ErrorIs(t, w.Claim(write("a", 12)), fencing.ErrStale)
}

func TestWatermarkRefusalRunsNothingAndRaisesNothing(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("a", 10)))
	access := func(context.Context) error {
		t.Error("a refused access ran")
		return nil
	}
	for _, do := range []func(context.Context, fencing.Fence, func(context.Context) error) error{w.Do, w.Derive} {
		require.ErrorIs(t, do(t.Context(), read("a", 9), access), fencing.ErrStale)
		require.ErrorIs(t, do(t.Context(), write("a", 0), access), fencing.ErrMissing)
		require.ErrorIs(t, do(t.Context(), write("a", fencing.MaxToken+1), access), fencing.ErrMalformed)
		require.ErrorIs(t, do(t.Context(), fencing.Fence{Resource: "a", Token: 11}, access), fencing.ErrMalformed)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, do(ended, write("a", 11), access), context.Canceled)
	}
	maxRead, maxWrite := w.Seen("a")
	require.Zero(t, maxRead)
	require.EqualValues(t, 10, maxWrite)
}

func TestWatermarkFailedAccessStaysSeen(t *testing.T) {
	var w fencing.Watermark
	broken := errors.New("disk full")
	require.ErrorIs(t, w.Do(t.Context(), write("a", 11), func(context.Context) error { return broken }), broken)
	require.Panics(t, func() {
		_ = w.Do(t.Context(), write("a", 12), func(context.Context) error { panic("half written") })
	})
	require.ErrorIs(t, w.Do(t.Context(), write("a", 11), nothing), fencing.ErrStale)
	require.NoError(t, w.Do(t.Context(), write("a", 12), nothing), "a panic leaves nothing locked")
}

// busy starts an access and returns when it is inside; calling finish ends it.
func busy(
	t *testing.T, do func(context.Context, fencing.Fence, func(context.Context) error) error, f fencing.Fence,
) (finish func()) {
	t.Helper()
	inside, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := do(context.Background(), f, func(context.Context) error {
			close(inside)
			<-end
			return nil
		}); err != nil {
			t.Errorf("%v: %v", f, err)
			close(inside)
		}
	}()
	<-inside
	return func() { close(end); <-ended }
}

func TestWatermarkReadersRunSideBySide(t *testing.T) {
	var w fencing.Watermark
	first := busy(t, w.Do, read("a", 5))
	newer := busy(t, w.Do, read("a", 7))
	older := busy(t, w.Do, read("a", 6))
	derived := busy(t, w.Derive, write("a", 5))
	other := busy(t, w.Do, write("b", 1))
	for _, finish := range []func(){first, newer, older, derived, other} {
		finish()
	}
}

func TestWatermarkWriteRunsAlone(t *testing.T) {
	for name, second := range map[string]func(w *fencing.Watermark) error{
		"write":  func(w *fencing.Watermark) error { return w.Do(context.Background(), write("a", 8), nothing) },
		"read":   func(w *fencing.Watermark) error { return w.Do(context.Background(), read("a", 8), nothing) },
		"derive": func(w *fencing.Watermark) error { return w.Derive(context.Background(), read("a", 8), nothing) },
		"claim":  func(w *fencing.Watermark) error { return w.Claim(read("a", 8)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w fencing.Watermark
				finish := busy(t, w.Do, write("a", 7))
				ended := make(chan error, 1)
				go func() { ended <- second(&w) }()
				synctest.Wait()
				require.Empty(t, ended, "it must wait for the write to end")
				maxRead, maxWrite := w.Seen("a")
				require.Zero(t, maxRead, "nor is it seen before")
				require.EqualValues(t, 7, maxWrite)

				require.ErrorIs(t, w.Do(context.Background(), read("a", 6), nothing), fencing.ErrStale,
					"what is stale already is refused at once")
				finish()
				require.NoError(t, <-ended)
			})
		})
	}
}

func TestWatermarkChecksAgainAfterWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		finish := busy(t, w.Do, write("a", 5))
		newer, older := make(chan error, 1), make(chan error, 1)
		go func() { newer <- w.Do(context.Background(), write("a", 9), nothing) }()
		synctest.Wait()
		go func() { older <- w.Do(context.Background(), write("a", 7), nothing) }() // not stale yet
		synctest.Wait()
		finish()
		require.NoError(t, <-newer)
		require.ErrorIs(t, <-older, fencing.ErrStale)
	})
}

func TestWatermarkWaitingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		finish := busy(t, w.Do, read("a", 5))
		ctx, cancel := context.WithCancelCause(context.Background())
		writer := make(chan error, 1)
		go func() { writer <- w.Do(ctx, write("a", 6), nothing) }()
		synctest.Wait()
		reader := make(chan error, 1)
		go func() { reader <- w.Do(context.Background(), read("a", 7), nothing) }()
		synctest.Wait()
		require.Empty(t, reader, "a reader does not pass a waiting writer")

		cancel(&fencing.LostError{Resource: "a", Token: 6, Reason: "expired"})
		err := <-writer
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, fencing.ErrLost)
		require.ErrorContains(t, err, `"a"`)
		require.NoError(t, <-reader, "who waited behind it goes on")
		finish()
		_, maxWrite := w.Seen("a")
		require.Zero(t, maxWrite)
		require.NoError(t, w.Do(context.Background(), write("a", 7), nothing))
	})
}

func TestWatermarkLetInAndCancelledAtOnce(t *testing.T) {
	var w fencing.Watermark
	for token := fencing.Token(1); token <= 200; token++ {
		ctx, cancel := context.WithCancel(context.Background())
		waiting, ended := make(chan struct{}), make(chan error, 1)
		require.NoError(t, w.Do(context.Background(), write("a", token), func(context.Context) error {
			go func() {
				close(waiting)
				ended <- w.Do(ctx, write("a", token), nothing)
			}()
			<-waiting
			cancel()
			return nil
		}))
		if err := <-ended; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, w.Claim(write("a", token)), "whoever won, nobody is left inside")
	}
}
