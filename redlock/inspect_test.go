package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// lockAndRelease takes the lock in a goroutine and gives it back at once.
func lockAndRelease(t *testing.T, p *peer, name string) <-chan error {
	over := make(chan error, 1)
	go func() {
		lease, err := p.Lock(t.Context(), name)
		if err == nil {
			err = lease.Release(t.Context())
		}
		over <- err
	}()
	return over
}

// showsItsOwn fails the test if a master does not show the holder and the waiter that it has.
func showsItsOwn(t *testing.T, m rwlock.MasterState) {
	switch m.Index {
	case 0, 2:
		require.Equal(t, "holder", m.Holders[0].Meta)
		require.Equal(t, "waiter", m.Waiters[0].Meta)
	case 3, 4: // a grant without a quorum
		require.Equal(t, "waiter", m.Holders[0].Meta)
		require.Empty(t, m.Waiters)
	}
}

// Inspect shows what a quorum agrees on, and beside it each master as it is.
func TestInspectShowsEachMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		holder := s.peer(time.Millisecond, rwlock.WithMeta("holder"))
		waiter := s.peer(time.Millisecond, rwlock.WithMeta("waiter"))
		holder.warm(t)
		for _, link := range holder.links[3:] { // it holds 0, 1 and 2
			link.Refuse()
			link.Cut()
		}
		lease, err := holder.Lock(t.Context(), "x")
		require.NoError(t, err)
		waiting := lockAndRelease(t, waiter, "x")
		time.Sleep(50 * time.Millisecond)
		s.minis[1].Stop()

		state, err := waiter.Inspect(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "x", state.Name)
		require.Equal(t, lease.Token(), state.Masters[0].Token)
		require.Len(t, state.Masters, 5)
		for i, m := range state.Masters {
			require.Equal(t, i, m.Index)
			require.Equal(t, i == 1, m.Err != nil, "master %d: %v", i, m.Err)
			showsItsOwn(t, m)
		}
		require.Empty(t, state.Holders, "no three of those that answer agree on one")

		s.minis[1].Recover()
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, <-waiting)

		s.minis[0].Stop()
		s.minis[1].Stop()
		s.minis[2].Stop()
		state, err = waiter.Inspect(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.Len(t, state.Masters, 5, "what there is")
	})
}

// An error names each master that failed, with its own cause.
func TestQuorumErrorNamesEachCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		p := s.peer(time.Millisecond)
		p.warm(t)
		s.minis[0].Stop()
		s.minis[1].Freeze()
		p.links[2].Blackhole(testredis.ToClient)
		s.minis[3].Crash()
		s.minis[3].Recover()
		synctest.Wait() // the client knows that its connections are gone
		_, err := p.Lock(t.Context(), "x", rwlock.WithMaxWait(3*time.Second))
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.ErrorContains(t, err, "the limit of WithMaxWait, 3s, was reached")
		var quorum *rwlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		require.Equal(t, "x", quorum.Name)
		require.Equal(t, 3, quorum.Need)
		require.Equal(t, 1, quorum.Got)
		require.Len(t, quorum.Nodes, 4)
		for i, says := range []string{"refused", "no reply in", "no reply in", "abstains for another"} {
			require.Equal(t, i, quorum.Nodes[i].Index)
			require.ErrorContains(t, quorum.Nodes[i].Err, says)
		}
		var silence *rwlock.NoReplyError
		require.ErrorAs(t, quorum.Nodes[1].Err, &silence)
		require.Positive(t, silence.After)
		var abstention *rwlock.AbstainError
		require.ErrorAs(t, quorum.Nodes[3].Err, &abstention)
		require.Positive(t, abstention.For)
	})
}

// A lock that cannot be asked for any more is not one that others hold, also for somebody who had been waiting.
func TestMajorityLostWhileWaitingIsNoContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		holder, waiter := s.peer(time.Millisecond), s.peer(time.Millisecond)
		lease, err := holder.Lock(t.Context(), "x")
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() {
			for _, m := range s.minis[:3] {
				m.Stop()
			}
		})
		_, err = waiter.Lock(t.Context(), "x", rwlock.WithMaxWait(20*time.Second))
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
		require.ErrorIs(t, lease.Err(), rwlock.ErrLost)
		var lost *rwlock.LostError
		require.ErrorAs(t, lease.Err(), &lost)
		require.Equal(t, rwlock.NoQuorum, lost.Reason)
	})
}
