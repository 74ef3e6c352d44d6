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

func requireSeen(t *testing.T, w *fencing.Watermark, resource string, maxRead, maxWrite fencing.Token) {
	t.Helper()
	r, m := w.Seen(resource)
	require.Equal(t, []fencing.Token{maxRead, maxWrite}, []fencing.Token{r, m}, resource)
}

func TestWatermarkChecksAndRaisesEachFence(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("b", 9)))
	fences := []fencing.Fence{write("c", 3), read("a", 5), write("b", 9)}
	ran := 0
	require.NoError(t, w.DoAll(t.Context(), fences, func(context.Context) error { ran++; return nil }))
	require.Equal(t, "c", fences[0].Resource, "the caller's slice is left alone")
	for _, fences := range [][]fencing.Fence{
		{write("a", 6), write("b", 8)}, {write("b", 8), write("a", 6)}, {read("a", 6), read("new", 1), read("b", 8)},
	} {
		err := w.DoAll(t.Context(), fences, func(context.Context) error { ran++; return nil })
		require.Equal(t, &fencing.StaleError{Resource: "b", Got: 8, Seen: 9}, err)
	}
	require.Equal(t, 1, ran)
	requireSeen(t, &w, "a", 5, 0)
	requireSeen(t, &w, "b", 0, 9)
	requireSeen(t, &w, "c", 0, 3)
	requireSeen(t, &w, "new", 0, 0)
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

func TestWatermarkRefusesAnAccessInsideEachOfSeveral(t *testing.T) {
	var w fencing.Watermark
	both := []fencing.Fence{write("b", 1), read("a", 1)}
	require.NoError(t, w.DoAll(t.Context(), both, func(ctx context.Context) error {
		for _, f := range []fencing.Fence{read("a", 1), write("a", 2), read("b", 2), write("b", 1)} {
			require.ErrorIs(t, w.Do(ctx, f, nothing), fencing.ErrNested)
			require.ErrorIs(t, w.DoAll(ctx, []fencing.Fence{write("c", 1), f}, nothing), fencing.ErrNested)
		}
		return w.Do(ctx, write("c", 1), nothing)
	}))
	require.NoError(t, w.DoAll(t.Context(), both, nothing), "nothing stays locked")
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

// The bubble ends with an error if they wait for each other.
func TestWatermarkOfSeveralResourcesDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fencing.Watermark
		var data [4]struct {
			mu sync.RWMutex
			n  int
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var workers sync.WaitGroup
		want := [len(data)]int{}
		for range 200 {
			var fences []fencing.Fence
			var ids []int
			for _, i := range rng.Perm(len(data))[:1+rng.IntN(3)] {
				f := read(fmt.Sprint("r", i), 7)
				if rng.IntN(3) > 0 {
					f.Mode = fencing.Write
					want[i]++
				}
				fences, ids = append(fences, f), append(ids, i)
			}
			pause := time.Duration(rng.IntN(3)) * time.Millisecond
			workers.Go(func() {
				err := w.DoAll(context.Background(), fences, func(context.Context) error {
					for at, f := range fences {
						d := &data[ids[at]]
						if f.Mode == fencing.Read {
							if !d.mu.TryRLock() {
								return errors.New("read beside a write")
							}
							defer d.mu.RUnlock()
							continue
						}
						if !d.mu.TryLock() {
							return errors.New("write beside another access")
						}
						defer d.mu.Unlock()
						d.n++
					}
					time.Sleep(pause)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		for i := range data {
			require.Equal(t, want[i], data[i].n)
		}
	})
}

// The rule for several fences at once against the rule for each.
func TestWatermarkOfSeveralAgreesWithRegisters(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var w fencing.Watermark
	want := map[string]fencing.Registers{}
	for range 2000 {
		var fences []fencing.Fence
		for _, i := range rng.Perm(5)[:1+rng.IntN(4)] {
			f := read(fmt.Sprint("r", i), fencing.Token(1+rng.IntN(30)))
			if rng.IntN(2) == 0 {
				f.Mode = fencing.Write
			}
			fences = append(fences, f)
		}
		accepted := true
		for _, f := range fences {
			accepted = accepted && want[f.Resource].Check(f) == nil
		}
		err := w.DoAll(t.Context(), fences, nothing)
		require.Equal(t, accepted, err == nil, "%v against %v: %v", fences, want, err)
		for _, f := range fences {
			if accepted {
				want[f.Resource] = want[f.Resource].Raise(f)
			}
			requireSeen(t, &w, f.Resource, want[f.Resource].MaxRead, want[f.Resource].MaxWrite)
		}
	}
}
