package redlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lease that a quorum keeps regains the masters that have lost its hold, one after the other, with the same token.

const regainTTL = 3 * time.Second

// forgetting are ways in which one master loses a hold.
var forgetting = map[string]func(s *set, p *peer, master int){
	"emptied": func(s *set, _ *peer, master int) {
		s.minis[master].Crash()
		s.minis[master].Recover()
	},
	"emptied, and away for a while": func(s *set, _ *peer, master int) {
		s.minis[master].Crash()
		time.Sleep(regainTTL + regainTTL/4)
		s.minis[master].Recover()
	},
	"away for longer than a TTL": func(s *set, _ *peer, master int) {
		s.minis[master].Stop()
		time.Sleep(regainTTL + regainTTL/4)
		s.minis[master].Recover()
	},
	"cut off from the holder for longer than a TTL": func(_ *set, p *peer, master int) {
		p.links[master].Refuse()
		p.links[master].Cut()
		time.Sleep(regainTTL + regainTTL/4)
		p.links[master].Restore()
	},
}

func TestLeaseRegainsEveryMasterInTurn(t *testing.T) {
	for what, forget := range forgetting {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			t.Run(mode.String()+" lock, "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSet(t, 3)
					opts := []rwlock.Option{rwlock.WithTTL(regainTTL), redlock.WithNodeTimeout(500 * time.Millisecond)}
					p, observer := s.peer(time.Millisecond, opts...), s.peer(time.Millisecond, opts...)
					take := p.Lock
					if mode == rwlock.Read {
						take = p.RLock
					}
					lease, err := take(t.Context(), "leader")
					require.NoError(t, err)
					token := lease.Token()
					for range 2 {
						for master := range s.minis {
							forget(s, p, master)
							time.Sleep(4 * regainTTL)
							require.NoError(t, lease.Err(), "after master %d", master)
							require.Equal(t, token, lease.Token())
							state, err := observer.Inspect(t.Context(), "leader")
							require.NoError(t, err)
							require.Len(t, state.Masters[master].Holders, 1, "master %d was not regained", master)
							require.Equal(t, lease.Owner(), state.Masters[master].Holders[0].Owner)
						}
					}
					_, err = observer.TryLock(t.Context(), "leader")
					require.ErrorIs(t, err, rwlock.ErrNotAcquired)
					require.NoError(t, lease.Release(t.Context()))
					time.Sleep(100 * time.Millisecond)
					requireFree(t, observer, "leader")
				})
			})
		}
	}
}

// Where something else was counted meanwhile, the hold is not regained: its token would be the older one.
func TestMasterThatCountedSomethingElseIsNotRegained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		opts := []rwlock.Option{rwlock.WithTTL(regainTTL), redlock.WithNodeTimeout(500 * time.Millisecond)}
		p, other := s.peer(time.Millisecond, opts...), s.peer(time.Millisecond, opts...)
		observer := s.peer(time.Millisecond, opts...)
		other.warm(t)
		lease, err := p.Lock(t.Context(), "leader")
		require.NoError(t, err)
		p.links[2].Refuse()
		p.links[2].Cut()
		time.Sleep(2 * regainTTL) // its hold on master 2 is over
		_, err = other.TryLock(t.Context(), "leader")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired, "master 2 grants it, and takes it back")
		p.links[2].Restore()
		time.Sleep(3 * regainTTL)
		require.NoError(t, lease.Err())
		state, err := observer.Inspect(t.Context(), "leader")
		require.NoError(t, err)
		require.Empty(t, state.Masters[2].Holders)
		require.NoError(t, lease.Release(t.Context()))

		s.minis[0].Stop() // master 2 and one of those that kept the lease
		next, err := other.Lock(soon(t, 4*regainTTL), "leader")
		require.NoError(t, err)
		require.Greater(t, next.Token(), lease.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

// All masters are restarted, one at a time, and keep what they had. After two TTLs a master votes again, and what it
// had of a hold is over unless it was regained.
func TestRollingRestartLosesNoLease(t *testing.T) {
	t.Parallel()
	s := newRealSet(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	const ttl = 2 * regainTTL // more than a busy machine stands still
	p := s.peer(nil, rwlock.WithTTL(ttl), redlock.WithNodeTimeout(2*time.Second))
	leader, reader := p.lockEverywhere(t, p.Lock, "leader"), p.lockEverywhere(t, p.RLock, "config")
	for i, server := range s.servers {
		server.Kill()
		time.Sleep(100 * time.Millisecond)
		server.Restart()
		limit, over := time.Now().Add(time.Minute), time.Now().Add(2*ttl)
		for time.Now().Before(over) || !p.heldEverywhere(t, "leader") || !p.heldEverywhere(t, "config") {
			require.NoError(t, leader.Err(), "the restart of master %d", i)
			require.NoError(t, reader.Err(), "the restart of master %d", i)
			if time.Now().After(limit) {
				state, err := p.Inspect(t.Context(), "leader")
				t.Fatalf("master %d was not regained: %+v, %v", i, state.Masters, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	require.NoError(t, leader.Release(t.Context()))
	require.NoError(t, reader.Release(t.Context()))
}

// lockEverywhere takes a lock until no master is missing: one that was too late for the verdict may have counted
// another token, and is not regained then.
func (p *realPeer) lockEverywhere(
	t *testing.T, take func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error), name string,
) *rwlock.Lease {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; {
		lease, err := take(soon(t, time.Minute), name)
		require.NoError(t, err)
		if p.heldEverywhere(t, name) {
			return lease
		}
		require.True(t, time.Now().Before(limit), "never held on all masters")
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(50 * time.Millisecond)
	}
}

// heldEverywhere reports whether every master has the hold of the lock, with one token: a master that answered late may
// have granted a larger one, which does not count and is not renewed.
func (p *realPeer) heldEverywhere(t *testing.T, name string) bool {
	t.Helper()
	state, err := p.Inspect(t.Context(), name)
	require.NoError(t, err)
	token := state.Masters[0].Token
	return !slices.ContainsFunc(state.Masters, func(m rwlock.MasterState) bool {
		return len(m.Holders) != 1 || m.Token != token
	})
}
