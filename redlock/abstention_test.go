package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A master abstains for as long as the quarantine, whatever its clock said when that began.
func TestAbstentionEndsThoughTheClockWasAhead(t *testing.T) {
	const ttl = 3 * time.Second
	for _, ahead := range []time.Duration{time.Minute, time.Hour, 100 * 24 * time.Hour} {
		t.Run(fmt.Sprint("booted ", ahead, " ahead"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 3)
				p := s.peer(time.Millisecond, rwlock.WithTTL(ttl))
				p.warm(t)
				s.minis[1].Crash()
				s.minis[1].Skew(ahead)
				s.minis[1].Recover()
				for until := time.Now().Add(ttl / 2); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
					p.warm(t)
				}
				s.minis[1].Skew(0)
				time.Sleep(2 * ttl)
				s.minis[2].Stop()
				lease, err := p.Lock(soon(t, 2*ttl), "x")
				require.NoError(t, err, "its quarantine of %v is long over", ttl)
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}

// Masters were set up by a user who may not run INFO. One who may is no reason for all of them to abstain.
func TestUserWithInfoMakesNobodyAbstain(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	s := newRealSet(t, 3)
	for _, server := range s.servers {
		command(t, server, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info")
	}
	app := s.peer(func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "secret" }, rwlock.WithTTL(ttl))
	lease, err := app.Lock(soon(t, ttl), "x")
	require.NoError(t, err)
	able := s.peer(nil, rwlock.WithTTL(ttl))
	for i := range 3 {
		begun := time.Now()
		other, err := able.Lock(soon(t, ttl*2/3), fmt.Sprint("unrelated ", i))
		require.NoError(t, err, "after %v", time.Since(begun))
		require.NoError(t, other.Release(t.Context()))
	}
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
}

// Answers that come after the node timeout are heard: a link that is always that slow gets its locks and keeps them.
func TestLinkSlowerThanTheNodeTimeoutWorks(t *testing.T) {
	for _, oneWay := range []time.Duration{20, 26, 30, 45, 100} {
		t.Run(fmt.Sprintf("round trip of %d ms", 2*oneWay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newSet(t, 3).peer(oneWay*time.Millisecond, rwlock.WithTTL(time.Second))
				for _, name := range []string{"x", "y"} {
					begun := time.Now()
					lease, err := p.Lock(soon(t, 10*time.Second), name)
					require.NoError(t, err)
					require.Less(t, time.Since(begun), 5*time.Second)
					time.Sleep(5 * time.Second)
					require.NoError(t, lease.Err(), "renewed as ever")
					require.NoError(t, lease.Release(t.Context()))
				}
			})
		})
	}
}

// The answer to a first yield comes after the grant was handed back and is wanted again. It is not taken for the answer
// to the second.
func TestAnswerToAnEarlierYieldIsNotTakenForALaterOnes(t *testing.T) {
	for _, late := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run("late by "+late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, book := newSet(t, 3), newScriptBook()
				older := clocked(-time.Second, 1)
				x, z, y := s.peer(time.Millisecond, older), s.peer(time.Millisecond, older), s.peer(time.Millisecond)
				book.watch(x, y, z)
				for _, p := range []*peer{x, y, z} {
					p.listen(t)
				}
				s.minis[2].Stop()
				y.links[1].Refuse() // y never gets a quorum
				y.links[1].Cut()
				time.Sleep(100 * time.Millisecond)
				go func() {
					if lease, err := y.Lock(soon(t, time.Minute), "door"); err == nil {
						_ = lease.Release(t.Context())
					}
				}()
				time.Sleep(50 * time.Millisecond)
				turn := func(p *peer) time.Duration {
					begun := time.Now()
					lease, err := p.Lock(soon(t, time.Minute), "door")
					require.NoError(t, err)
					took := time.Since(begun)
					time.Sleep(3 * time.Millisecond)
					require.NoError(t, lease.Release(t.Context()))
					return took
				}
				turn(x) // the master learns the script
				time.Sleep(100 * time.Millisecond)
				if late > 0 {
					y.links[0].DelayNextReply(book.running(scripts.Yield), late)
				}
				turn(x)
				time.Sleep(10 * time.Millisecond)
				require.Less(t, turn(z), late+200*time.Millisecond)
				require.NoError(t, y.Close())
			})
		})
	}
}

// listen makes the process wait once, so that its subscriptions stand.
func (p *peer) listen(t *testing.T) {
	t.Helper()
	held, err := p.Lock(t.Context(), "warm-up")
	require.NoError(t, err)
	over := make(chan error)
	go func() {
		lease, err := p.Lock(t.Context(), "warm-up")
		if err == nil {
			err = lease.Release(t.Context())
		}
		over <- err
	}()
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, <-over)
	time.Sleep(50 * time.Millisecond)
}
