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
