package fencing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

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

// Concurrent accesses, judged from inside: when one starts, the model must accept
// it after all that started before; a write must be alone from start to end.
func TestWatermarkConcurrentAccessesAgreeWithTheModel(t *testing.T) {
	rng := seeded(t)
	var w fencing.Watermark
	var (
		mu      sync.Mutex
		model   = map[string]*history{"r0": {}, "r1": {}, "r2": {}}
		inside  = map[string]map[fencing.Mode]int{"r0": {}, "r1": {}, "r2": {}}
		workers sync.WaitGroup
	)
	observe := func(f fencing.Fence, derived bool, change int) {
		mu.Lock()
		defer mu.Unlock()
		mode := f.Mode
		if derived {
			mode = fencing.Read
		}
		if change > 0 {
			if !model[f.Resource].accepts(f, derived) {
				t.Errorf("%v derived=%v ran after %v", f, derived, model[f.Resource].accesses)
			}
			if !derived {
				model[f.Resource].accesses = append(model[f.Resource].accesses, f)
			}
		}
		now := inside[f.Resource]
		now[mode] += change
		if now[fencing.Write] > 1 || now[fencing.Write] == 1 && now[fencing.Read] > 0 {
			t.Errorf("%v: %d writes beside %d reads", f, now[fencing.Write], now[fencing.Read])
		}
	}
	for range 8 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		workers.Go(func() {
			for step := range 300 {
				f, do, derived := anyFence(own, step), w.Do, own.IntN(3) == 0
				if derived {
					do = w.Derive
				}
				_ = do(context.Background(), f, func(context.Context) error {
					observe(f, derived, +1)
					runtime.Gosched()
					observe(f, derived, -1)
					return nil
				})
			}
		})
	}
	workers.Wait()
	for resource, h := range model {
		require.NotEmpty(t, h.accesses)
		maxRead, maxWrite := w.Seen(resource)
		require.Equal(t, h.newest(fencing.Read), maxRead)
		require.Equal(t, h.newest(fencing.Write), maxWrite)
	}
}
