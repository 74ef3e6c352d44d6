package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// skewed returns three masters whose clocks differ.
func skewed(t *testing.T, skews ...time.Duration) *set {
	s := newSet(t, len(skews))
	for i, m := range s.minis {
		m.Skew(skews[i])
	}
	return s
}

// tries takes and gives back each of n locks, with one attempt, and returns how often that worked.
func (p *peer) tries(t *testing.T, name string, n int) (acquired int, last error) {
	for i := range n {
		lease, err := p.TryLock(t.Context(), fmt.Sprint(name, i))
		if err != nil {
			last = err
			continue
		}
		acquired++
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Millisecond)
	}
	return acquired, last
}

// A client proposes tokens by what the masters' clocks show, whatever its own does: the masters mint one token, and
// nothing has to be raised.
func TestAClientWhoseClockIsOff(t *testing.T) {
	for _, lead := range []time.Duration{0, 2 * time.Second, -2 * time.Second, time.Hour, -time.Hour} {
		t.Run(lead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := skewed(t, -10*time.Millisecond, 0, 10*time.Millisecond)
				good, off := s.peer(time.Millisecond), s.peer(time.Millisecond, wallClockAhead(lead))
				count := s.countScripts()
				for range 2 { // the second time each finds what the other has counted
					for _, p := range []*peer{off, good} {
						acquired, err := p.tries(t, "n", 20)
						require.Equal(t, 20, acquired, "%v", err)
					}
				}
				require.Zero(t, count()[scripts.Raise])
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
				synctest.Test(t, func(t *testing.T) {
					p := skewed(t, skews...).peer(3 * time.Millisecond)
					p.links[first].Delay(time.Millisecond)
					acquired, err := p.tries(t, "n", 40)
					require.Equal(t, 40, acquired, "%v", err)
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
			synctest.Test(t, func(t *testing.T) {
				s := skewed(t, skews...)
				p := s.peer(time.Millisecond, rwlock.WithTTL(20*time.Second), redlock.WithNodeTimeout(50*time.Millisecond))
				acquired, err := p.tries(t, "used", 10)
				require.Equal(t, 10, acquired, "%v", err)
				s.minis[2].Crash()
				time.Sleep(apart)
				acquired, err = p.tries(t, "used", 10)
				require.Equal(t, 10, acquired, "%v", err)

				acquired, err = p.tries(t, "new", 10)
				require.Zero(t, acquired)
				require.ErrorIs(t, err, rwlock.ErrNoQuorum)
				require.ErrorContains(t, err, "clock")
				lease, err := p.Lock(soon(t, apart), "newer")
				require.NoError(t, err)
				require.NoError(t, lease.Release(t.Context()))
				time.Sleep(apart)
				acquired, err = p.tries(t, "new", 10)
				require.Equal(t, 10, acquired, "%v", err)
			})
		})
	}
}
