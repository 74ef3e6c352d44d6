package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

func nothing(context.Context) error { return nil }

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
		require.ErrorContains(t, do(t.Context(), write("a", 11), nil), `"a" is nil`)
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

func TestWatermarkAccessesThatWait(t *testing.T) {
	ctx := context.Background()
	for name, tt := range map[string]struct {
		first  fencing.Fence
		second func(w *fencing.Watermark) error
	}{
		"write":  {read("a", 7), func(w *fencing.Watermark) error { return w.Do(ctx, write("a", 8), nothing) }},
		"read":   {write("a", 7), func(w *fencing.Watermark) error { return w.Do(ctx, read("a", 8), nothing) }},
		"derive": {write("a", 7), func(w *fencing.Watermark) error { return w.Derive(ctx, read("a", 8), nothing) }},
		"claim":  {write("a", 7), func(w *fencing.Watermark) error { return w.Claim(read("a", 8)) }},
		"reset":  {read("a", 7), func(w *fencing.Watermark) error { return w.Reset(ctx, write("a", 6)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w fencing.Watermark
				finish := busy(t, w.Do, tt.first)
				ended := make(chan error, 1)
				go func() { ended <- tt.second(&w) }()
				synctest.Wait()
				require.Empty(t, ended, "it must wait for the first to end")
				seen := fencing.Registers{}.Raise(tt.first)
				requireSeen(t, &w, "a", seen.MaxRead, seen.MaxWrite) // nor is it seen before
				require.ErrorIs(t, w.Do(context.Background(), write("a", 6), nothing), fencing.ErrStale,
					"what is stale already is refused at once")
				finish()
				require.NoError(t, <-ended)
			})
		})
	}
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

// anyFences are up to four fences of as many resources, with some of the 30 tokens after from: some of them are stale.
func anyFences(rng *rand.Rand, from int) (fences []fencing.Fence) {
	for _, i := range rng.Perm(5)[:1+rng.IntN(4)] {
		fences = append(fences, fencing.Fence{
			Resource: fmt.Sprint("r", i), Token: fencing.Token(from + 1 + rng.IntN(30)), Mode: fencing.Mode(1 + rng.IntN(2)),
		})
	}
	return fences
}

// The rule, for one fence and for several at once.
func TestWatermarkAgreesWithRegisters(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		var w fencing.Watermark
		want := map[string]fencing.Registers{}
		for range 60 {
			fences, ran, check := anyFences(rng, 0), false, fencing.Registers.Check
			access := func(context.Context) error { ran = true; return nil }
			kind, f := rng.IntN(4), fences[0]
			if kind == 0 {
				check = fencing.Registers.CheckDerived
			}
			if kind < 3 {
				fences = fences[:1]
			}
			accepted := true
			for _, f := range fences {
				accepted = accepted && check(want[f.Resource], f) == nil
			}
			var err error
			switch kind {
			case 0:
				err = w.Derive(t.Context(), f, access)
			case 1:
				err = w.Do(t.Context(), f, access)
			case 2:
				err = w.Claim(f)
				ran = err == nil
			case 3:
				err = w.DoAll(t.Context(), fences, access)
			}
			require.Equal(t, accepted, ran, "%d: %v against %v: %v", kind, fences, want, err)
			require.Equal(t, accepted, err == nil)
			for _, f := range fences {
				if accepted && kind > 0 {
					want[f.Resource] = want[f.Resource].Raise(f)
				}
				requireSeen(t, &w, f.Resource, want[f.Resource].MaxRead, want[f.Resource].MaxWrite)
			}
		}
	}
}

func TestRegistersCheck(t *testing.T) {
	seen := fencing.Registers{MaxRead: 20, MaxWrite: 10}
	for name, tt := range map[string]struct {
		fence          fencing.Fence
		check, derived fencing.Token // the register that refuses; zero where it passes
	}{
		"read before the newest write": {read("a", 9), 10, 10},
		"read at the newest write":     {read("a", 10), 0, 0},
		"read beside newer readers":    {read("a", 15), 0, 0},
		"write before both":            {write("a", 9), 20, 10},
		"write before the newest read": {write("a", 19), 20, 0},
		"write at the newest read":     {write("a", 20), 0, 0},
		"write after both":             {write("a", 21), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			requireVerdict(t, tt.fence, tt.check, seen.Check(tt.fence))
			requireVerdict(t, tt.fence, tt.derived, seen.CheckDerived(tt.fence))
		})
	}
	require.ErrorIs(t, seen.Check(read("a", 0)), fencing.ErrMissing)
	require.ErrorIs(t, seen.CheckDerived(read("", 30)), fencing.ErrMalformed)
}

func requireVerdict(t *testing.T, f fencing.Fence, refusedBy fencing.Token, err error) {
	t.Helper()
	if refusedBy == 0 {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, fencing.ErrStale)
	require.Equal(t, &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: refusedBy}, err)
}

func TestRegistersRaise(t *testing.T) {
	var none fencing.Registers
	require.Equal(t, fencing.Registers{MaxRead: 5}, none.Raise(read("a", 5)))
	require.Equal(t, fencing.Registers{MaxWrite: 5}, none.Raise(write("a", 5)))

	seen := fencing.Registers{MaxRead: 20, MaxWrite: 10}
	require.Equal(t, seen, seen.Raise(read("a", 15)), "a register never goes back")
	require.Equal(t, fencing.Registers{MaxRead: 20, MaxWrite: 25}, seen.Raise(write("a", 25)))
}
