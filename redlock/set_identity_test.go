package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// of starts a process over some of the masters.
func (s *set) of(masters []int, opts ...rwlock.Option) *peer {
	part := &set{t: s.t}
	for _, i := range masters {
		part.minis = append(part.minis, s.minis[i])
	}
	return part.peer(time.Millisecond, opts...)
}

// Two clients whose lists of masters overlap in one would both have a quorum. The one that comes second is told.
func TestAnotherListOfMastersIsRefused(t *testing.T) {
	for what, second := range map[string][]int{
		"two replaced":              {2, 3, 4},
		"two replaced, other order": {3, 2, 4},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 5)
				first := s.of([]int{0, 1, 2}, rwlock.WithTTL(3*time.Second))
				lease, err := first.Lock(t.Context(), "x")
				require.NoError(t, err)
				other := s.of(second, rwlock.WithTTL(3*time.Second))
				for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(time.Second) {
					next, err := other.TryLock(t.Context(), "x")
					require.Nil(t, next, "beside a lease of the first set")
					require.ErrorIs(t, err, rwlock.ErrOption)
					next, err = other.Lock(soon(t, time.Second), "unrelated")
					require.Nil(t, next)
					require.ErrorIs(t, err, rwlock.ErrOption)
				}
				require.NoError(t, lease.Err(), "the first set is not troubled")
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}

// Two clients whose lists differ in one master have quorums that share none. Whoever of them is told, they never hold a
// lock at once.
func TestReplacedMasterSplitsNoQuorum(t *testing.T) {
	const ttl = 3 * time.Second
	for _, wait := range []time.Duration{0, 3 * ttl} {
		t.Run("other at work for "+wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 4)
				first, other := s.of([]int{0, 1, 2}, rwlock.WithTTL(ttl)), s.of([]int{0, 1, 3}, rwlock.WithTTL(ttl))
				first.warm(t)
				for until := time.Now().Add(wait); !time.Now().After(until); time.Sleep(ttl / 10) {
					if lease, err := other.TryLock(t.Context(), "unrelated"); err == nil {
						require.NoError(t, lease.Release(t.Context()))
					}
				}
				first.links[1].Refuse()
				first.links[1].Cut()
				other.links[0].Refuse()
				other.links[0].Cut()
				lease, err := first.Lock(soon(t, ttl), "x")
				if err != nil {
					return // the first set is the one that is told
				}
				for until := time.Now().Add(4 * ttl); time.Now().Before(until) && lease.Err() == nil; {
					next, err := other.TryLock(t.Context(), "x")
					if err == nil {
						require.Error(t, lease.Err(), "tokens %v and %v are held at once", lease.Token(), next.Token())
						require.NoError(t, next.Release(t.Context()))
					}
					time.Sleep(ttl / 10)
				}
				_ = lease.Release(t.Context())
			})
		})
	}
}

// The same masters in another order are the same set.
func TestOrderOfMastersDoesNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		one, two := s.of([]int{0, 1, 2}), s.of([]int{2, 0, 1})
		lease, err := one.Lock(t.Context(), "x")
		require.NoError(t, err)
		_, err = two.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		require.NoError(t, lease.Release(t.Context()))
		lease, err = two.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A client that counts on another TTL is refused also where the masters do not answer its first questions: nothing is
// acquired before enough of them have shown what they were set up for.
func TestNothingIsAcquiredBeforeTheMastersAreKnown(t *testing.T) {
	for _, ttl := range []time.Duration{30 * time.Second, time.Second} {
		for _, slow := range []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second} {
			t.Run("TTL "+ttl.String()+", slow for "+slow.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSet(t, 3)
					s.peer(time.Millisecond, rwlock.WithTTL(2*time.Second)).warm(t)
					odd := s.peer(time.Millisecond, rwlock.WithTTL(ttl))
					for _, link := range odd.links {
						link.Hold(testredis.Both)
					}
					time.AfterFunc(slow, func() {
						for _, link := range odd.links {
							link.Restore()
						}
					})
					for range 3 {
						lease, err := odd.Lock(soon(t, 10*time.Second), "x")
						require.Nil(t, lease)
						require.ErrorIs(t, err, rwlock.ErrOption)
					}
				})
			})
		}
	}
}

// How a fleet gets another master or another TTL: all clients stop for the quarantine, the key PREFIX:master is deleted
// on every master that stays, and the clients start with the new settings. Tokens go on where they were.
func TestFleetIsChangedByTheProcedure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 4)
		const ttl = 3 * time.Second
		old := s.of([]int{0, 1, 2}, rwlock.WithTTL(ttl))
		lease, err := old.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, old.Close())
		refused := s.of([]int{0, 1, 3}, rwlock.WithTTL(10*time.Second))
		_, err = refused.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrOption, "the procedure was not followed")
		require.NoError(t, refused.Close())

		time.Sleep(ttl)
		for _, i := range []int{0, 1} {
			s.minis[i].Miniredis().Del("fencelock:master")
		}
		changed := s.of([]int{0, 1, 3}, rwlock.WithTTL(10*time.Second))
		begun := time.Now()
		next, err := changed.Lock(soon(t, time.Minute), "x")
		require.NoError(t, err)
		require.Less(t, time.Since(begun), time.Second)
		require.Greater(t, next.Token(), lease.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}
