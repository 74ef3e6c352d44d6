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
