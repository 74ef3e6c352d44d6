package redlock_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
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
		expect.NoError(waiter.Inspect(w.Ctx, "free")).In(w, "a hold that no other master shows is none of a quorum")

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
		p := warm(w)
		w.Minis[0].Stop()
		w.Minis[1].Freeze()
		p.Links[2].Blackhole(testredis.ToClient)
		w.Wipe(3)
		synctest.Wait() // the client knows that its connections are gone
		_, err := p.Lock(w.Ctx, "x", rwlock.WithMaxWait(3*time.Second))
		expect.Fails(w, err, rwlock.ErrNoQuorum, "WithMaxWait limit of 3s reached")
		quorum := testkit.As[*rwlock.QuorumError](w, err)
		require.Equal(w, "x", quorum.Name)
		require.Equal(w, 3, quorum.Need)
		require.Equal(w, 1, quorum.Got)
		require.Len(w, quorum.Nodes, 4)
		for i, says := range []string{"refused", "no reply in", "no reply in", "in quarantine for another"} {
			require.Equal(w, i, quorum.Nodes[i].Index)
			require.ErrorContains(w, quorum.Nodes[i].Err, says)
		}
		require.Positive(w, testkit.As[*rwlock.NoReplyError](w, quorum.Nodes[1].Err).After)
		require.Positive(w, testkit.As[*rwlock.AbstainError](w, quorum.Nodes[3].Err).For)
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
		require.Equal(w, rwlock.ReasonNotRenewed, testkit.As[*rwlock.LostError](w, lease.Err()).Reason)
	})
}

// A connection that is opened for the request, such as the first one, changes no vote, and a view is none.
func TestInspectOverANewConnection(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		lease := w.Process().Take("x", rwlock.Write)
		p := warmed(w.ProcessOver(testkit.Net{Way: time.Millisecond, Tuned: true}))
		for _, l := range p.Links {
			l.Cut()
		}
		w.Settle() // the client knows that its connections are gone
		require.Len(w, expect.NoError(p.Inspect(w.Ctx, "x")).In(w).Holders, 1)
		w.Release(lease)
	})
}

// List shows each lock of any master once, and goes on without a master that does not answer.
func TestListIsTheUnionOfTheMasters(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		w.TTL = time.Minute
		holder, waiter := warm(w), w.Process()
		held := holder.Take("held", rwlock.Write)
		holder.CutOff(0, 1)
		elsewhere := holder.Take("elsewhere", rwlock.Write) // on three masters
		waiting := waiter.InTurn(w.Ctx, "held", rwlock.Write)
		time.Sleep(50 * time.Millisecond)

		operator := w.Process()
		states := func() (shown map[string]rwlock.State, failed []error) {
			shown = map[string]rwlock.State{}
			for state, err := range operator.List(w.Ctx, "") {
				time.Sleep(time.Second)
				if state.Name == "" {
					failed = append(failed, err)
					continue
				}
				require.NotContains(w, shown, state.Name)
				require.Len(w, state.Masters, 5)
				shown[state.Name] = state
			}
			return shown, failed
		}
		shown, failed := states()
		require.Empty(w, failed)
		require.Len(w, shown, 2)
		require.Equal(w, held.Token(), shown["held"].Token)
		require.Len(w, shown["held"].Holders, 1)
		require.Len(w, shown["held"].Waiters, 1)
		require.Len(w, shown["elsewhere"].Holders, 1)
		require.Empty(w, shown["elsewhere"].Masters[0].Holders)

		w.Minis[1].Stop()
		w.Minis[2].Freeze()
		begun := time.Now()
		shown, failed = states()
		require.Less(w, time.Since(begun), 7500*time.Millisecond, "4 s of this test, 2 s for the master's view of "+
			"a lock, and 1 s for its own list")
		require.Len(w, shown, 2)
		require.Len(w, shown["held"].Holders, 1)
		require.Len(w, failed, 2, "one for each master")
		for i, err := range failed {
			require.Equal(w, i+1, testkit.As[*rwlock.NodeError](w, err).Index)
		}

		require.ErrorContains(w, failed[0], "refused")
		require.ErrorContains(w, failed[1], "dial timed out after 1s")

		w.Minis[3].Stop()
		failures := 0
		for state, err := range operator.List(w.Ctx, "") {
			if state.Name == "" {
				failures++
			}
			missing := state.Name != "" || failures == 3 // held locks may be missing in the whole list
			require.Equal(w, missing, errors.Is(err, rwlock.ErrNoQuorum), "%v", err)
		}
		w.Minis[1].Recover()
		w.Minis[2].Thaw()
		w.Minis[3].Recover()
		holder.Restore(0, 1)
		w.Release(held, elsewhere)
		w.Release(waiting.Granted())
	})
}

// replaced is a world with another server in the place of the last.
func replaced(w *world) *world {
	now := testkit.OnServers(w.T, append(w.Servers[:2:2], testredis.Start(w))...)
	now.TTL = w.TTL
	return now
}

// One master is moved by a replica: it is copied, the copy is promoted, and clients go over to the new list one by one.
// Lists that differ in that pair would have quorums that share no server: the copy has no vote, whoever asks it.
func TestMovedMasterHasNoVote(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	w.TTL = 2 * time.Second
	list := replaced(w)
	moved := list.Servers[2]
	old := w.ProcessOver(tuned)
	old.Use("warm-up")
	moved.ReplicaOf(w.Servers[2])
	awaitReplica(w, w.Servers[2])
	follow(w, moved, nil)
	var log testkit.Log
	next := list.ProcessOver(tuned, log.Option())
	untuned := list.Process()
	for begun := time.Now(); time.Since(begun) < 2*w.TTL; { // longer than a quarantine would last
		for _, p := range []*process{old, next, untuned} {
			p.Use("daily")
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Contains(t, log.String(), "is another server than the one at")
	require.Contains(t, log.String(), next.Proxies[2].Option().InitAddress[0])

	old.CutOff(1)
	next.CutOff(0)
	untuned.CutOff(0)
	alone := list.ProcessOver(tuned) // it has never met the others
	alone.CutOff(0)
	alone.CutOff(1)
	lease := expect.NoError(old.Lock(w.Soon(time.Minute), "x", rwlock.WithoutRenewal())).In(t)
	nobodyBeside(w, lease, next, untuned, alone)
	_, err := next.TryLock(w.Soon(10*time.Second), "x")
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, testkit.As[*rwlock.AbstainError](t, err), "is another server than the one at")
}

var foundings = flag.Int("redlock.foundings", testredis.Few(1, 10), "how many first starts of a set are simulated")

// TestSimulatedFoundings has processes start at about the same time over masters without markers, each with the list in
// another order, and soon with two masters only. Requests that give markers are late, and a master loses its data, or
// all do, one after the other. Two never hold the lock at once, and in the end somebody who starts gets it.
func TestSimulatedFoundings(t *testing.T) {
	for seed := range *foundings {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			testkit.InFakeTime(t, 3, func(w *world) { found(w, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func found(w *world, rng *rand.Rand) {
	w.Fresh, w.TTL = true, 3*time.Second
	if rng.IntN(2) == 0 {
		for _, m := range w.Minis {
			m.NewProcess() // they show their run ids
		}
	}
	w.Net.Tuned = rng.IntN(2) == 0
	w.Net.Way = time.Duration(1+rng.IntN(40)) * time.Millisecond
	oracle := judge.For(w, "founding")
	over := time.Now().Add(4 * w.TTL)
	var work sync.WaitGroup
	for range 3 + rng.IntN(3) {
		p, rng := w.Part(rng.Perm(3)...).Connect(w.Net), rand.New(rand.NewPCG(rng.Uint64(), 2))
		for _, link := range p.Links {
			if rng.IntN(3) == 0 {
				link.OnCommand(late(rand.New(rand.NewPCG(rng.Uint64(), 3))))
			}
		}
		p.Start(redlock.WithNodeTimeout(time.Duration(100+rng.IntN(2000)) * time.Millisecond))
		time.Sleep(upTo(rng, 300*time.Millisecond))
		cut, after := rng.IntN(3), upTo(rng, w.TTL)
		work.Go(func() {
			time.AfterFunc(after, func() { p.CutOff(cut) }) // so a lease stands on two masters, and one is lost
			for time.Now().Before(over) {
				at := oracle.Begin("x")
				lease, err := p.Lock(w.Soon(upTo(rng, 4*time.Second)), "x", rwlock.WithTTL(upTo(rng, w.TTL)+100*time.Millisecond))
				if err != nil {
					continue
				}
				oracle.Acquired(at, lease)
				time.Sleep(upTo(rng, w.TTL))
				oracle.Sweep()
				_ = lease.Release(w.Ctx)
			}
		})
	}
	lost := rng.Perm(3)[:1+2*rng.IntN(2)]
	for _, i := range lost {
		time.Sleep(upTo(rng, 3*w.TTL/2))
		if m := w.Minis[i]; rng.IntN(2) == 0 {
			m.FlushAll()
		} else {
			m.Crash()
			time.AfterFunc(upTo(rng, time.Second), m.Recover)
		}
	}
	work.Wait()
	time.Sleep(3 * w.TTL)
	w.Process().Section("x")
	w.Logf("%s", oracle.Summary())
}

// late has requests that give markers wait, each for its time.
func late(rng *rand.Rand) func(cmd []string) {
	var mu sync.Mutex
	return func(cmd []string) {
		if !testredis.Named("EVAL", "EVALSHA")(cmd) || testkit.ScriptOf(cmd) != scripts.Marker || cmd[4] == "look" {
			return
		}
		mu.Lock()
		wait := upTo(rng, 3*time.Second)
		mu.Unlock()
		time.Sleep(wait)
	}
}
