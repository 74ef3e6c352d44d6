package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// showsItsOwn fails the test if a master does not show the holder and the waiter that it has.
func showsItsOwn(t require.TestingT, m rwlock.MasterState) {
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
	inFakeTime(t, 5, func(w *world) {
		holder := w.Process(rwlock.WithMeta("holder"))
		waiter := w.Process(rwlock.WithMeta("waiter"))
		holder.Section("warm-up")
		holder.CutOff(3, 4)
		lease := holder.Take("x", rwlock.Write)
		waiting := waiter.InTurn(w.Ctx, "x", rwlock.Write)
		time.Sleep(50 * time.Millisecond)
		w.Minis[1].Stop()

		state, err := waiter.Inspect(w.Ctx, "x")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, `no quorum: 2 of the 3 masters that it needs; mini-1:6379: `)
		require.ErrorContains(w, err, "may make it a quorum for a hold that the others show")
		require.Equal(w, "x", state.Name)
		require.Equal(w, lease.Token(), state.Masters[0].Token)
		require.Len(w, state.Masters, 5)
		for i, m := range state.Masters {
			require.Equal(w, i, m.Index)
			require.Equal(w, i == 1, m.Err != nil, "master %d: %v", i, m.Err)
			showsItsOwn(w, m)
		}
		require.Empty(w, state.Holders, "no three of those that answer agree on one")

		w.Minis[1].Recover()
		w.Release(lease)
		waiting.Granted()
		w.Minis[1].Stop()
		_, err = waiter.Inspect(w.Ctx, "free")
		require.NoError(w, err, "a hold that no other master shows is none of a quorum")

		w.Minis[0].Stop()
		w.Minis[1].Stop()
		w.Minis[2].Stop()
		state, err = waiter.Inspect(w.Ctx, "x")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.Len(w, state.Masters, 5, "what there is")
	})
}

// An error names each master that failed, with its own cause.
func TestQuorumErrorNamesEachCause(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		p := w.Process()
		p.Section("warm-up")
		w.Minis[0].Stop()
		w.Minis[1].Freeze()
		p.Links[2].Blackhole(testredis.ToClient)
		w.Wipe(3)
		synctest.Wait() // the client knows that its connections are gone
		_, err := p.Lock(w.Ctx, "x", rwlock.WithMaxWait(3*time.Second))
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, "WithMaxWait limit of 3s reached")
		var quorum *rwlock.QuorumError
		require.ErrorAs(w, err, &quorum)
		require.Equal(w, "x", quorum.Name)
		require.Equal(w, 3, quorum.Need)
		require.Equal(w, 1, quorum.Got)
		require.Len(w, quorum.Nodes, 4)
		for i, says := range []string{"refused", "no reply in", "no reply in", "in quarantine for another"} {
			require.Equal(w, i, quorum.Nodes[i].Index)
			require.ErrorContains(w, quorum.Nodes[i].Err, says)
		}
		var silence *rwlock.NoReplyError
		require.ErrorAs(w, quorum.Nodes[1].Err, &silence)
		require.Positive(w, silence.After)
		var abstention *rwlock.AbstainError
		require.ErrorAs(w, quorum.Nodes[3].Err, &abstention)
		require.Positive(w, abstention.For)
	})
}

// A lock that cannot be asked for any more is not one that others hold, also for somebody who had been waiting.
func TestMajorityLostWhileWaitingIsNoContention(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		holder, waiter := w.Process(), w.Process()
		lease := holder.Take("x", rwlock.Write)
		time.AfterFunc(time.Second, func() {
			for _, m := range w.Minis[:3] {
				m.Stop()
			}
		})
		_, err := waiter.Lock(w.Ctx, "x", rwlock.WithMaxWait(20*time.Second))
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(w, err, rwlock.ErrNotAcquired)
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
		var lost *rwlock.LostError
		require.ErrorAs(w, lease.Err(), &lost)
		require.Equal(w, rwlock.ReasonNotRenewed, lost.Reason)
	})
}

// A connection that is opened for the request, such as the first one, changes no vote, and a view is none.
func TestInspectOverANewConnection(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		lease := w.Process().Take("x", rwlock.Write)
		p := w.ProcessOver(testkit.Net{Way: time.Millisecond, Tuned: true})
		p.Section("warm-up")
		for _, l := range p.Links {
			l.Cut()
		}
		state, err := p.Inspect(w.Ctx, "x")
		require.NoError(w, err)
		require.Len(w, state.Holders, 1)
		w.Release(lease)
	})
}
