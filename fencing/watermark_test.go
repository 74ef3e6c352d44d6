package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// history is the plain model: it keeps every access that took place and judges a
// new one by looking at all of them.
type history struct{ accesses []fencing.Fence }

func (h *history) accepts(f fencing.Fence, derived bool) bool {
	for _, past := range h.accesses {
		newer := past.Token > f.Token
		if newer && (past.Mode == fencing.Write || f.Mode == fencing.Write && !derived) {
			return false
		}
	}
	return true
}

func (h *history) newest(mode fencing.Mode) (newest fencing.Token) {
	for _, past := range h.accesses {
		if past.Mode == mode {
			newest = max(newest, past.Token)
		}
	}
	return newest
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// anyFence has one of the 40 tokens after from, so some are stale and some are not.
func anyFence(rng *rand.Rand, from int) fencing.Fence {
	f := read(fmt.Sprint("r", rng.IntN(3)), fencing.Token(from+1+rng.IntN(40)))
	if rng.IntN(2) == 0 {
		f.Mode = fencing.Write
	}
	return f
}

func TestWatermarkAgreesWithTheModel(t *testing.T) {
	rng := seeded(t)
	for range 200 {
		var w fencing.Watermark
		model := map[string]*history{"r0": {}, "r1": {}, "r2": {}}
		for range 60 {
			f := anyFence(rng, 0)
			h := model[f.Resource]
			ran, derived := false, false
			access := func(context.Context) error { ran = true; return nil }
			var err error
			switch rng.IntN(3) {
			case 0:
				err = w.Do(t.Context(), f, access)
			case 1:
				err = w.Claim(f)
				ran = err == nil
			case 2:
				derived = true
				err = w.Derive(t.Context(), f, access)
			}
			require.Equal(t, h.accepts(f, derived), ran, "%v derived=%v after %v", f, derived, h.accesses)
			if !ran {
				require.ErrorIs(t, err, fencing.ErrStale)
				continue
			}
			require.NoError(t, err)
			if !derived {
				h.accesses = append(h.accesses, f)
			}
			maxRead, maxWrite := w.Seen(f.Resource)
			require.Equal(t, h.newest(fencing.Read), maxRead)
			require.Equal(t, h.newest(fencing.Write), maxWrite)
		}
	}
}

// overlaps judges concurrent accesses from inside: when one starts, the model must accept it after all that started
// before; a write must be alone from start to end.
type overlaps struct {
	t      *testing.T
	mu     sync.Mutex
	model  map[string]*history
	inside map[string]map[fencing.Mode]int
}

// observe sees an access start (change is 1) or end (-1).
func (o *overlaps) observe(f fencing.Fence, derived bool, change int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	mode, past := f.Mode, o.model[f.Resource]
	if derived {
		mode = fencing.Read
	}
	if change > 0 {
		if !past.accepts(f, derived) {
			o.t.Errorf("%v derived=%v ran after %v", f, derived, past.accesses)
		}
		if !derived {
			past.accesses = append(past.accesses, f)
		}
	}
	now := o.inside[f.Resource]
	now[mode] += change
	if now[fencing.Write] > 1 || now[fencing.Write] == 1 && now[fencing.Read] > 0 {
		o.t.Errorf("%v: %d writes beside %d reads", f, now[fencing.Write], now[fencing.Read])
	}
}

func TestWatermarkConcurrentAccessesAgreeWithTheModel(t *testing.T) {
	rng := seeded(t)
	var w fencing.Watermark
	o := &overlaps{
		t: t, model: map[string]*history{"r0": {}, "r1": {}, "r2": {}},
		inside: map[string]map[fencing.Mode]int{"r0": {}, "r1": {}, "r2": {}},
	}
	var workers sync.WaitGroup
	for range 8 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		workers.Go(func() {
			for step := range 300 {
				f, do, derived := anyFence(own, step), w.Do, own.IntN(3) == 0
				if derived {
					do = w.Derive
				}
				_ = do(context.Background(), f, func(context.Context) error {
					o.observe(f, derived, +1)
					runtime.Gosched()
					o.observe(f, derived, -1)
					return nil
				})
			}
		})
	}
	workers.Wait()
	for resource, h := range o.model {
		require.NotEmpty(t, h.accesses)
		maxRead, maxWrite := w.Seen(resource)
		require.Equal(t, h.newest(fencing.Read), maxRead)
		require.Equal(t, h.newest(fencing.Write), maxWrite)
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
