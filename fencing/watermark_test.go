package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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
		require.ErrorContains(t, err, `waiting for accesses of "a" to end`)
		require.NoError(t, <-reader, "who waited behind it goes on")
		finish()
		_, maxWrite := w.Seen("a")
		require.Zero(t, maxWrite)
		require.NoError(t, w.Do(context.Background(), write("a", 7), nothing))
	})
}

// An error says that an access waited only if it did.
func TestWatermarkUnderAContextThatHasEnded(t *testing.T) {
	lost := &fencing.LostError{Resource: "a", Token: 6, Reason: "expired"}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lost)
	for name, busyWith := range map[string]string{"free": "b", "another is inside": "a"} {
		t.Run(name, func(t *testing.T) {
			var w fencing.Watermark
			finish := busy(t, w.Do, read(busyWith, 5))
			defer finish()
			for _, f := range []fencing.Fence{read("a", 6), write("a", 6)} {
				err := w.Do(ctx, f, func(context.Context) error {
					t.Error("it must not run")
					return nil
				})
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, lost)
				require.EqualError(t, err, `fencing: "a" not accessed: context canceled: `+lost.Error())
			}
			_, maxWrite := w.Seen("a")
			require.Zero(t, maxWrite)
		})
	}
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

func requireSeen(t *testing.T, w *fencing.Watermark, resource string, maxRead, maxWrite fencing.Token) {
	t.Helper()
	r, m := w.Seen(resource)
	require.Equal(t, []fencing.Token{maxRead, maxWrite}, []fencing.Token{r, m}, resource)
}

func TestWatermarkNamesTheFenceThatIsRefused(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("b", 9)))
	fences := []fencing.Fence{write("c", 3), write("b", 8), read("a", 6)}
	err := w.DoAll(t.Context(), fences, nothing)
	require.Equal(t, &fencing.StaleError{Resource: "b", Got: 8, Seen: 9}, err)
	require.Equal(t, "c", fences[0].Resource, "the caller's slice is left alone")
}

func TestWatermarkRefusesFencesThatMakeNoAccess(t *testing.T) {
	var w fencing.Watermark
	for name, c := range map[string]struct {
		fences []fencing.Fence
		want   error
		text   string
	}{
		"none":     {nil, fencing.ErrMalformed, "at least one"},
		"twice":    {[]fencing.Fence{write("a", 1), read("b", 1), read("a", 1)}, fencing.ErrMalformed, `"a"`},
		"no token": {[]fencing.Fence{write("a", 1), read("b", 0)}, fencing.ErrMissing, `"b"`},
	} {
		err := w.DoAll(t.Context(), c.fences, func(context.Context) error { t.Error("access ran"); return nil })
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.text, name)
	}
	require.Error(t, w.DoAll(t.Context(), []fencing.Fence{write("a", 1), read("b", 1)}, nil))
	requireSeen(t, &w, "a", 0, 0)
}

// An access that waits for its second resource has the first. When it gives up, the first is free.
func TestWatermarkGivesUpBetweenTwoResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		finish := busy(t, w.Do, write("b", 5))
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, next := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- w.DoAll(ctx, []fencing.Fence{write("b", 7), write("a", 7)}, nothing) }()
		synctest.Wait()
		go func() { next <- w.Do(context.Background(), write("a", 6), nothing) }()
		synctest.Wait()
		require.Empty(t, next, "it waits for the first resource")
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		require.NoError(t, <-next, "a register that rose would refuse it")
		finish()
		requireSeen(t, &w, "b", 0, 5)
	})
}

// A token that becomes stale while the access waits refuses it, also at the second resource.
func TestWatermarkChecksEachAgainAfterWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		finish := busy(t, w.Do, write("b", 5))
		newer, older := make(chan error, 1), make(chan error, 1)
		go func() { newer <- w.Do(context.Background(), write("b", 9), nothing) }()
		synctest.Wait()
		go func() { older <- w.DoAll(context.Background(), []fencing.Fence{write("a", 7), write("b", 7)}, nothing) }()
		synctest.Wait()
		finish()
		require.NoError(t, <-newer)
		require.Equal(t, &fencing.StaleError{Resource: "b", Got: 7, Seen: 9}, <-older)
		requireSeen(t, &w, "a", 0, 0)
	})
}

// The bubble ends with an error if they wait for each other. From inside, each access is accepted after all that have
// begun before it, a write is alone, and reads are beside no write.
func TestWatermarkOfSeveralResourcesDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		var mu sync.Mutex
		seen, inside := map[string]fencing.Registers{}, map[string]*sync.RWMutex{}
		enter := func(f fencing.Fence) (leave func(), err error) {
			mu.Lock()
			defer mu.Unlock()
			if inside[f.Resource] == nil {
				inside[f.Resource] = new(sync.RWMutex)
			}
			d := inside[f.Resource]
			enters, leave := d.TryLock, d.Unlock
			if f.Mode == fencing.Read {
				enters, leave = d.TryRLock, d.RUnlock
			}
			if !enters() {
				return nil, fmt.Errorf("%v beside another access", f)
			}
			err = seen[f.Resource].Check(f)
			seen[f.Resource] = seen[f.Resource].Raise(f)
			return leave, err
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var workers sync.WaitGroup
		step, ran := 0, 0
		for range 200 {
			workers.Go(func() {
				mu.Lock()
				fences, pause := anyFences(rng, step/4), time.Duration(rng.IntN(3))*time.Millisecond
				step++ // tokens rise in whatever order the goroutines run, or most would be stale
				mu.Unlock()
				err := w.DoAll(context.Background(), fences, func(context.Context) error {
					for _, f := range fences {
						leave, err := enter(f)
						if err != nil {
							t.Error(err)
							return nil
						}
						defer leave()
					}
					time.Sleep(pause)
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					ran++
				} else if !errors.Is(err, fencing.ErrStale) {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		require.Greater(t, ran, 20)
		for resource, want := range seen {
			requireSeen(t, &w, resource, want.MaxRead, want.MaxWrite)
		}
	})
}

// noDone is the context of a request that a web framework uses again: once the request is over, it panics.
type noDone struct{ context.Context }

func (noDone) Done() <-chan struct{} { panic("the request is over") }

// A visitor whose context panics while it waits leaves the gate open for others.
func TestWatermarkOutlivesACallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		require.NoError(t, w.Do(t.Context(), write("r", 1), func(context.Context) error {
			waits := make(chan any)
			go func() {
				defer func() { waits <- recover() }()
				_ = w.Do(noDone{t.Context()}, write("r", 2), nothing)
			}()
			require.NotNil(t, <-waits)
			return nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, w.Do(ctx, write("r", 3), nothing))
	})
}
