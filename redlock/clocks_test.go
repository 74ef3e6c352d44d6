package redlock_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
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
		{0, 700 * time.Millisecond, time.Minute},
		{990 * time.Millisecond, 0, time.Minute},
		{0, 990 * time.Millisecond, -time.Minute},
		{0, 400 * time.Millisecond, 990 * time.Millisecond, time.Minute, time.Hour},
	} {
		for first := range skews {
			t.Run(fmt.Sprintf("%v, %d answers first", skews, first), func(t *testing.T) {
				inSkewedTime(t, skews, func(w *world) {
					p := w.ProcessAt(3 * time.Millisecond)
					p.Links[first].Delay(time.Millisecond)
					rounds := testredis.Few(4, 40)
					acquired, err := tries(p, "n", rounds)
					require.Equal(w, rounds, acquired, "%v", err)
				})
			})
		}
	}
}

// A lock that is new begins on every master whose clock is close enough to the others, not on a quorum alone.
func TestMastersWhoseClocksDifferALittle(t *testing.T) {
	for _, skews := range [][]time.Duration{
		{0, 0, 500 * time.Millisecond},
		{0, 0, -500 * time.Millisecond},
		{0, 700 * time.Millisecond, 400 * time.Millisecond},
		{0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, 650 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(skews), func(t *testing.T) {
			inSkewedTime(t, skews, func(w *world) {
				p := w.ProcessAt(time.Millisecond)
				p.Section("warm-up")
				for i := range 5 {
					name := fmt.Sprint("n", i)
					lease := p.Take(name, rwlock.Write)
					w.Pass(time.Second)
					for j, m := range w.Inspect(name).Masters {
						require.Equal(w, lease.Token(), m.Token, "%s on master %d", name, j)
					}
					w.Release(lease)
				}
			})
		})
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

// majorities yields every majority of five masters, as a bit set: of three, of four and of all.
func majorities(yield func(masters int)) {
	for set := range 1 << 5 {
		count := 0
		for i := range 5 {
			count += set >> i & 1
		}
		if count >= 3 {
			yield(set)
		}
	}
}

// increase takes and gives back one lock again and again, each time by a locker drawn at random, and checks that each
// token is greater than all before it.
func increase(t testing.TB, lockers []*rwlock.Locker, rounds int, settle func()) {
	require.Len(t, lockers, 10+5+1)
	rng := rand.New(rand.NewPCG(5, 0))
	var last fencing.Token
	begun := time.Now()
	for i := range rounds {
		lease, err := lockers[rng.IntN(len(lockers))].Lock(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, lease.Token(), last, "acquisition %d", i)
		last = lease.Token()
		require.NoError(t, lease.Release(t.Context()))
		settle()
	}
	t.Logf("%d acquisitions in %v", rounds, time.Since(begun))
}

// Whatever majority an acquisition reaches, its token is greater than all before it, though no process has seen what
// another was given and the clock is of no help: time stands still.
func TestTokensIncreaseOverChangingMajorities(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		var lockers []*rwlock.Locker
		majorities(func(masters int) {
			p := w.ProcessAt(0)
			p.Section("warm-up")
			synctest.Wait()
			for i := range p.Links {
				if masters>>i&1 == 0 {
					p.CutOff(i)
				}
			}
			lockers = append(lockers, p.Locker)
		})
		increase(w, lockers, 500, synctest.Wait)
	})
}
