package redlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// inSkewedTime runs a test over masters whose clocks differ.
func inSkewedTime(t *testing.T, skews []time.Duration, test func(w *world)) {
	inFakeTime(t, len(skews), func(w *world) {
		for i, m := range w.Minis {
			m.Skew(skews[i])
		}
		test(w)
	})
}

// tries takes and gives back each of n locks, with one attempt, and returns how often that worked.
func tries(p *process, name string, n int) (acquired int, last error) {
	for i := range n {
		lease, err := p.TryLock(p.W.Ctx, fmt.Sprint(name, i))
		if err != nil {
			last = err
			continue
		}
		acquired++
		p.W.Release(lease)
		time.Sleep(time.Millisecond)
	}
	return acquired, last
}

// A client proposes tokens by what the masters' clocks show, whatever its own does: the masters mint one token, and
// nothing has to be raised.
func TestAClientWhoseClockIsOff(t *testing.T) {
	for _, lead := range []time.Duration{0, 2 * time.Second, -2 * time.Second, time.Hour, -time.Hour} {
		t.Run(lead.String(), func(t *testing.T) {
			inSkewedTime(t, []time.Duration{-10 * time.Millisecond, 0, 10 * time.Millisecond}, func(w *world) {
				good, off := w.Process(), w.Process(ahead(lead))
				sent := w.Requests()
				for range 2 { // the second time each finds what the other has counted
					for _, p := range []*process{off, good} {
						acquired, err := tries(p, "n", 20)
						require.Equal(w, 20, acquired, "%v", err)
					}
				}
				require.Zero(w, sent.Counts()[scripts.Raise])
			})
		})
	}
}

// Where the clocks of the masters differ by more than tokens may be ahead of them, those that are close to each other
// agree, in whatever order they answer.
func TestMastersWhoseClocksAreFarApart(t *testing.T) {
	const second = time.Second
	for _, skews := range [][]time.Duration{
		{-3 * second / 2, 0, 10 * time.Millisecond},
		{0, 3 * second / 2, -10 * time.Millisecond},
		{0, time.Minute, 0},
		{-time.Minute, 900 * time.Millisecond, 0},
		{-20 * second, -20 * second, 0, second / 2, second / 4},
		{20 * second, 0, -20 * second, second / 2, second / 4},
	} {
		for first := range skews {
			t.Run(fmt.Sprintf("%v, %d answers first", skews, first), func(t *testing.T) {
				inSkewedTime(t, skews, func(w *world) {
					p := w.ProcessAt(3 * time.Millisecond)
					p.Links[first].Delay(time.Millisecond)
					acquired, err := tries(p, "n", 40)
					require.Equal(w, 40, acquired, "%v", err)
				})
			})
		}
	}
}

// When there is only a quorum left, and its clocks are more than a second apart, a lock that was used before is to be
// had as soon as the clock behind has come within a second of its token. One without a counter is not to be had at the
// first attempt: the master ahead mints no less than its clock, since it cannot know what it has forgotten, and the one
// behind does not follow so far ahead of its own.
func TestAQuorumWhoseClocksAreFarApart(t *testing.T) {
	const apart = 1500 * time.Millisecond
	for name, skews := range map[string][]time.Duration{"behind": {-apart, 0, 0}, "ahead": {apart, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			inSkewedTime(t, skews, func(w *world) {
				p := w.Process(rwlock.WithTTL(20*time.Second), redlock.WithNodeTimeout(50*time.Millisecond))
				acquired, err := tries(p, "used", 10)
				require.Equal(w, 10, acquired, "%v", err)
				w.Minis[2].Crash()
				time.Sleep(apart)
				acquired, err = tries(p, "used", 10)
				require.Equal(w, 10, acquired, "%v", err)

				acquired, err = tries(p, "new", 10)
				require.Zero(w, acquired)
				require.ErrorIs(w, err, rwlock.ErrNoQuorum)
				require.ErrorContains(w, err, "clock")
				w.Release(p.Acquire(w.Soon(apart), "newer", rwlock.Write).Granted())
				time.Sleep(apart)
				acquired, err = tries(p, "new", 10)
				require.Equal(w, 10, acquired, "%v", err)
			})
		})
	}
}
