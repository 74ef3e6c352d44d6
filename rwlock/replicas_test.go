package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// What counts only with replicas: a master that has one, which may be frozen.

const (
	replicaTTL     = 10 * time.Second
	replicaTimeout = 3 * time.Second        // in which a replica confirms, on a busy machine too
	frozenTimeout  = 300 * time.Millisecond // for one that never does
)

func withReplica(t *testing.T) (master, replica *testredis.Server) {
	testredis.Require(t)
	master, replica = testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	return master, replica
}

// replicated returns a locker whose grants count with n replicas. It is closed when the test ends.
func replicated(t *testing.T, addr string, n int, opts ...rwlock.Option) *rwlock.Locker {
	all := []rwlock.Option{rwlock.WithTTL(replicaTTL), rwlock.WithReplicas(n, replicaTimeout)}
	return testkit.Dial(t, addr, rueidis.ClientOption{}, append(all, opts...)...)
}

// holders returns how many hold the lock, as the server shows it.
func holders(t *testing.T, l *rwlock.Locker, name string) int {
	return len(expect.NoError(l.Inspect(t.Context(), name)).In(t).Holders)
}

func TestTooFewReplicasRefuseAGrant(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	master, replica := withReplica(t)
	replica.Freeze()
	defer replica.Thaw()
	for need, got := range map[int]int{1: 0, 2: 0} {
		l := replicated(t, master.Addr(), need, rwlock.WithReplicas(need, frozenTimeout))
		for how, take := range acquisitions(l) {
			_, err := take(t.Context(), "n")
			require.ErrorIs(t, err, rwlock.ErrReplicas, how)
			require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
			require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
			require.ErrorContains(t, err, `lock "n": too few replicas`)
			short := testkit.As[*rwlock.ReplicasError](t, err)
			require.Equal(t, rwlock.ReplicasError{Need: need, Got: got, After: frozenTimeout}, *short)
			require.Eventually(t, func() bool { return holders(t, l, "n") == 0 },
				testkit.Patience, time.Millisecond, "rolled back")
		}
		require.NoError(t, l.Close())
	}
}

// A waiter that is handed the lock does not take it before the replica knows of it.
func TestAHandOffCountsOnceTheReplicaHasIt(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	master, replica := withReplica(t)
	first, second := replicated(t, master.Addr(), 1), replicated(t, master.Addr(), 1)
	for _, frozen := range []bool{false, true} {
		held := expect.NoError(first.Lock(t.Context(), "n")).In(t)
		waiting := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		var owner string
		var record any // as the replica has it
		go func() {
			lease, err := second.Lock(ctx, "n")
			if err == nil {
				owner = lease.Owner()
				record, err = replica.Command("HGET", "fencelock:{n}", "w")
				err = errors.Join(err, lease.Release(ctx))
			}
			waiting <- err
		}()
		require.Eventually(t, func() bool {
			state, err := first.Inspect(t.Context(), "n")
			return err == nil && len(state.Waiters) == 1
		}, testkit.Patience, time.Millisecond)
		if frozen {
			replica.Freeze()
		}
		require.NoError(t, held.Release(t.Context()))
		if err := <-waiting; frozen {
			require.ErrorIs(t, err, rwlock.ErrReplicas)
		} else {
			require.NoError(t, err)
			require.Contains(t, record, owner)
		}
		cancel()
	}
	replica.Thaw()
	require.Eventually(t, func() bool { return holders(t, first, "n") == 0 },
		testkit.Patience, time.Millisecond, "rolled back")
}

// The deadline does not move past the expiry that the replica knows.
func TestARenewalCountsOnceTheReplicaHasIt(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	master, replica := withReplica(t)
	lease := expect.NoError(replicated(t, master.Addr(), 1).Lock(t.Context(), "n")).In(t)
	before := lease.Deadline()
	require.NoError(t, lease.Renew(t.Context()))
	require.Greater(t, lease.Deadline(), before)

	replica.Freeze()
	defer replica.Thaw()
	err := lease.Renew(t.Context())
	require.ErrorIs(t, err, rwlock.ErrReplicas)
	require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, `lock "n": too few replicas confirmed it`)
	require.ErrorAs(t, err, new(*rwlock.ReplicasError))
	require.False(t, rwlock.Indeterminate(err), "the master has renewed it")
	select {
	case <-lease.Done():
	case <-time.After(testkit.Patience):
		require.Fail(t, "it goes on without its replica")
	}
	require.ErrorIs(t, lease.Err(), rwlock.ErrLost)
	require.ErrorIs(t, lease.Err(), rwlock.ErrReplicas)
}

// What needs no replica does not wait for one: neither a queue, nor a release.
func TestWithoutReplicasNobodyWaitsForThem(t *testing.T) {
	t.Parallel() // servers start and are waited for
	master, replica := withReplica(t)
	plain := replicated(t, master.Addr(), 0)
	replica.Freeze()
	defer replica.Thaw()
	lease := expect.NoError(plain.Lock(t.Context(), "n")).In(t)
	l := replicated(t, master.Addr(), 1)
	require.ErrorIs(t, expect.ErrorOf(l.TryLock(t.Context(), "n")), rwlock.ErrNotAcquired, "a refusal needs no replica")
	require.NoError(t, lease.Release(t.Context()))
}

// The answer to a grant is lost. The next request finds it and writes nothing: WAIT says nothing of the replica.
func TestAGrantThatIsFoundAgainIsConfirmed(t *testing.T) {
	t.Parallel() // servers start and are waited for
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		for _, frozen := range []bool{false, true} {
			t.Run(fmt.Sprint(filepath.Base(binary), ", frozen ", frozen), func(t *testing.T) {
				master, replica := testredis.StartBinary(t, binary), testredis.StartBinary(t, binary)
				replica.ReplicaOf(master)
				proxy := testredis.NewProxy(t, master.Addr())
				l := replicated(t, proxy.Addr(), 1, rwlock.WithTTL(20*time.Second))
				require.NoError(t, giveBack(l.Lock(t.Context(), "warm")))
				if frozen {
					replica.Freeze()
					defer replica.Thaw()
				}
				lost := proxy.DropNextReply(testredis.Named("EVALSHA"))
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
				defer cancel()
				lease, err := l.Lock(ctx, "n")
				<-lost
				if frozen {
					require.ErrorIs(t, err, rwlock.ErrReplicas)
					return
				}
				require.NoError(t, err)
				require.Contains(t, commandOn(t, replica, "HGET", "fencelock:{n}", "w"), lease.Owner())
			})
		}
	}
}

// In a Cluster a grant counts with the replica of the shard that it is in, and with no other.
func TestReplicasOfAShardConfirmItsLocks(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	testredis.Require(t)
	c := testredis.StartCluster(t, redisBinary(t), 1)
	l := replicatedIn(t, c.Option(), 1)
	frozen := c.Owner(c.Slot("fencelock:{a}"))
	replica := c.ReplicaOf(frozen)
	for i := range 10 {
		lockedOnReplica(t, c, l, string(rune('a'+i)))
	}
	replica.Freeze()
	defer replica.Thaw()
	for i := range 10 {
		name := string(rune('a' + i))
		if c.Owner(c.Slot("fencelock:{"+name+"}")) != frozen {
			lockedOnReplica(t, c, l, name)
			continue
		}
		require.ErrorIs(t, expect.ErrorOf(l.TryLock(t.Context(), name)), rwlock.ErrReplicas)
	}
}

// replicatedIn returns a locker with a TTL that is longer than any failover takes.
func replicatedIn(t *testing.T, option rueidis.ClientOption, n int) *rwlock.Locker {
	return testkit.Dial(t, "", option, rwlock.WithTTL(2*time.Minute), rwlock.WithReplicas(n, replicaTimeout))
}

// lockedOnReplica takes the lock and fails the test if its replica does not have it by then.
func lockedOnReplica(t *testing.T, c *testredis.Cluster, l *rwlock.Locker, name string) {
	lease := expect.NoError(l.Lock(t.Context(), name)).In(t)
	key := "fencelock:{" + name + "}"
	replica := c.ReplicaOf(c.Owner(c.Slot(key)))
	commandOn(t, replica, "READONLY")
	require.Contains(t, commandOn(t, replica, "HGET", key, "w"), lease.Owner())
	require.NoError(t, lease.Release(t.Context()))
}

// cutOff ends the replication to these servers for good: they keep what they have, and are not let in again.
func cutOff(t *testing.T, master *testredis.Server, replicas ...*testredis.Server) {
	for _, replica := range replicas {
		commandOn(t, replica, "CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
	}
	commandOn(t, master, "CLIENT", "KILL", "TYPE", "replica")
	require.Eventually(t, func() bool {
		return master.Info("replication")["connected_slaves"] == "0"
	}, testkit.Patience, time.Millisecond)
}

// A master dies whose replicas lag behind. One of them takes its place and knows nothing of the last grant, so that the
// lock has two holders. Who asks for a replica is refused the grant instead.
func TestReplicasThatLagBehindAFailover(t *testing.T) {
	t.Parallel() // servers start and are waited for
	testredis.Require(t)
	one := map[int]error{1: rwlock.ErrReplicas}
	for n, want := range testredis.Few(one, map[int]error{0: nil, 1: rwlock.ErrReplicas}) {
		t.Run(fmt.Sprint(n, " replicas asked for"), func(t *testing.T) {
			t.Parallel()
			s := testredis.StartSentinel(t, redisBinary(t))
			first, second := replicatedIn(t, s.Option(), n), replicatedIn(t, s.Option(), 0)
			require.NoError(t, giveBack(first.Lock(t.Context(), "warm")))

			cutOff(t, s.Master(), s.Nodes()[1:]...)
			lease, err := first.TryLock(t.Context(), "n")
			require.ErrorIs(t, err, want)
			s.KillMaster()
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			other := expect.NoError(second.Lock(ctx, "n")).In(t)
			if lease != nil {
				require.NoError(t, lease.Err(), "two holders: what a failover does without replicas")
			}
			require.NoError(t, other.Release(ctx))
		})
	}
}

// A server with a durable log answers a write once the log has it. Its messages do not wait for that, so a failover may
// lose a hand-off that its waiter has heard of.

// inside is what a caller sees under the lock.
type inside struct {
	ctx   context.Context // ends with the lease
	token fencing.Token
	leave func(context.Context) error
}

// waits asks for the lock "n" and returns when it has it.
type waits func(ctx context.Context) (inside, error)

func byLease(take func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error)) waits {
	return func(ctx context.Context) (inside, error) {
		lease, err := take(ctx, "n")
		if err != nil {
			return inside{}, err
		}
		return inside{lease.Context(context.Background()), lease.Token(), lease.Release}, nil
	}
}

func byMutex(mu *rwlock.RWMutex, lock, unlock func(context.Context) error) waits {
	return func(ctx context.Context) (inside, error) {
		err := lock(ctx)
		return inside{mu.Context(context.Background()), mu.Token(), unlock}, err
	}
}

// handOffs are the ways to wait for the lock. Each begins while the holder has it, and waits when the result is called.
var handOffs = []struct {
	name  string
	held  rwlock.Mode // by the holder
	rival rwlock.Mode // of a third client, which the waiter excludes and the holder's release lets in
	asks  bool        // the waiter asks the server when it listens again, and notices what was lost
	begin func(p *process) waits
}{
	{"a writer behind a writer", rwlock.Write, rwlock.Write, false, func(p *process) waits { return byLease(p.Lock) }},
	{"a writer behind a reader", rwlock.Read, rwlock.Read, false, func(p *process) waits { return byLease(p.Lock) }},
	{"a reader behind a writer", rwlock.Write, rwlock.Write, false, func(p *process) waits { return byLease(p.RLock) }},
	{"an RWMutex that writes", rwlock.Write, rwlock.Write, true, func(p *process) waits {
		mu := p.RWMutex("n")
		return byMutex(mu, mu.Lock, mu.Unlock)
	}},
	{"an RWMutex that reads", rwlock.Write, rwlock.Write, true, func(p *process) waits {
		mu := p.RWMutex("n")
		return byMutex(mu, mu.RLock, mu.RUnlock)
	}},
	{"an upgrade", rwlock.Read, rwlock.Read, false, func(p *process) waits {
		lease := p.Take("n", rwlock.Read)
		return func(ctx context.Context) (inside, error) {
			err := lease.Upgrade(ctx)
			return inside{lease.Context(context.Background()), lease.Token(), lease.Release}, err
		}
	}},
	{"an upgrade of an RWMutex", rwlock.Read, rwlock.Read, true, func(p *process) waits {
		mu := p.RWMutex("n")
		require.NoError(p.W, mu.RLock(p.W.Ctx))
		return byMutex(mu, mu.Upgrade, mu.Unlock)
	}},
}

// The holder gives the lock to a waiter while the log stands still, and a failover loses that. Without the option the
// waiter believes in the hand-off, and a third client gets the lock beside it. With the option the waiter goes on
// waiting, and gets the lock after the third client, with a larger token.
func TestAHandOffThatTheLogLoses(t *testing.T) {
	for _, h := range handOffs {
		for _, confirmed := range []bool{false, true} {
			subtestInFakeTime(t, fmt.Sprint(h.name, ", confirmed ", confirmed), func(w *world) {
				if confirmed {
					w.Opts = append(w.Opts, rwlock.WithConfirmedHandOff())
				}
				holder, waiter, third := w.Process(), w.Process(), w.Process()
				third.WarmUp()
				makeListen(waiter)
				held := holder.Take("n", h.held)
				wait := h.begin(waiter)

				w.Mini.StallCommits()
				var got inside
				waiting := w.Call(w.Ctx, func(ctx context.Context) (err error) { got, err = wait(ctx); return err })
				release := w.Call(w.Ctx, held.Release)
				require.True(w, release.IsWaiting(), "for the log")

				w.Mini.LoseCommits()
				rival := third.Acquire(w.Ctx, "n", h.rival)
				if !confirmed {
					require.NoError(w, waiting.Result())
					lease := rival.Granted()
					if !h.asks {
						require.NoError(w, got.ctx.Err(), "two holders: what the failover does without the option")
					}
					_ = lease.Release(w.Ctx) // its link may just have been restored
					return
				}
				w.Eventually("one has it", func() bool { return !waiting.IsWaiting() || !rival.IsWaiting() })
				w.Pass(w.Claim() / 6) // by then the release has been repeated, and nothing was renewed
				require.NotEqual(w, waiting.IsWaiting(), rival.IsWaiting(), "one has it, and the other waits")
				if waiting.IsWaiting() {
					before := rival.Granted()
					_ = before.Release(w.Ctx)
					require.NoError(w, waiting.Result())
					require.Greater(w, got.token, before.Token())
					return
				}
				require.NoError(w, waiting.Err)
				require.NoError(w, got.ctx.Err())
				_ = got.leave(w.Ctx)
				require.Greater(w, rival.Granted().Token(), got.token)
			})
		}
	}
}

// makeListen has a process wait for another lock once, so that it listens to messages and knows the server's clock.
func makeListen(p *process) {
	p.W.Helper()
	other := p.W.Process().Take("other", rwlock.Write)
	waiting := p.Queue("other", rwlock.Write)
	p.W.Release(other)
	p.W.Release(waiting.Granted())
}

// A lock that is handed over costs its waiter two commands: the acquisition and the release. The confirmation is one
// more. It takes the place of the first renewal, which is due after a third of the claim time.
func TestConfirmedHandOffCostsOneCommand(t *testing.T) {
	for _, c := range []struct {
		held             time.Duration
		plain, confirmed int
	}{{0, 2, 3}, {1500 * time.Millisecond, 3, 3}} {
		for _, confirmed := range []bool{false, true} {
			subtestInFakeTime(t, fmt.Sprint("held for ", c.held, ", confirmed ", confirmed), func(w *world) {
				want, trips := c.plain, 0
				if confirmed {
					w.Opts, want, trips = append(w.Opts, rwlock.WithConfirmedHandOff()), c.confirmed, 1
				}
				const way = time.Millisecond
				p := w.ProcessAt(way)
				makeListen(p)
				p.WarmUp()
				held := w.Process().Take("n", rwlock.Write)
				p.Link.ResetCalls()
				waiting := p.Queue("n", rwlock.Write)
				at := time.Now()
				lease := waiting.GrantedAfter(held)
				require.Equal(w, way+time.Duration(trips)*2*way, waiting.At.Sub(at), "the message, and a round trip")
				w.Pass(c.held)
				w.Release(lease)
				require.Equal(w, map[string]int{"EVALSHA": want}, sent(p.Link))
			})
		}
	}
}

// breakUntilGone repeats a Break until the hold is gone, as an operator does while servers change.
func breakUntilGone(w *world, op *process, name, hold string, opts ...rwlock.BreakOption) {
	w.Helper()
	w.Eventually("the hold is gone", func() bool {
		err := op.Break(w.Soon(testkit.Patience), name, hold, "again", opts...)
		if !errors.Is(err, rwlock.ErrNoQuorum) && !errors.Is(err, rwlock.ErrNotHeld) {
			require.NoError(w, err)
		}
		return errors.Is(err, rwlock.ErrNotHeld)
	})
}

// A failover loses that a hold was broken. The hold stands as before, until it is broken again.
func TestABreakThatAFailoverLoses(t *testing.T) {
	testredis.NeedAll(t, "failovers take many seconds, and run none of this module's code that other tests do not")
	t.Parallel() // servers start and are waited for
	testredis.Require(t)
	for name, opts := range map[string][]rwlock.Option{"no replicas": nil, "replicas": {withAReplica}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testredis.StartSentinel(t, redisBinary(t))
			w := testkit.OnGroup(t, s)
			w.TTL, w.Opts = time.Hour, opts // longer than any failover takes
			holder, op, other := w.Process(), operator(w), w.Process()
			lease := holder.Take("n", rwlock.Write)
			hold := w.Inspect("n").Holders[0].Hold
			old := s.Master()
			require.EqualValues(t, len(s.Nodes())-1, w.On(old, "WAIT", "2", "20000"))
			holder.CutOff(0) // or it would hear of the Break at once
			cutOff(t, old, s.Nodes()[1:]...)
			ctx, cancel := context.WithCancel(w.Ctx)
			first := w.Call(ctx, func(ctx context.Context) error { return op.Break(ctx, "n", hold, "first") })
			w.Eventually("it is broken", func() bool { return w.Inspect("n").Holders[0].Broken })
			cancel()
			require.ErrorIs(t, first.Result(), context.Canceled)

			s.KillMaster()
			var state rwlock.State
			w.Eventually("the new master answers", func() (ok bool) {
				var err error
				state, err = op.Inspect(w.Ctx, "n")
				return err == nil
			})
			require.Equal(t, hold, state.Holders[0].Hold)
			require.False(t, state.Holders[0].Broken)
			require.NoError(t, lease.Err())
			require.Error(t, expect.ErrorOf(other.TryLock(w.Ctx, "n")))
			holder.Restore(0)
			hears := w.Call(w.Ctx, func(ctx context.Context) error {
				for lease.Err() == nil {
					_ = lease.Renew(ctx) // no renewal is due
				}
				err := lease.Err()
				_ = lease.Release(ctx) // until then its lock is kept
				return err
			})
			breakUntilGone(w, op, "n", hold)
			require.Error(t, hears.Result())
			requireBroken(w, lease.Err(), "again")
		})
	}
}
