package redlock_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

const disorderTTL = 2 * time.Second

// disordered starts servers for processes with a short TTL.
func disordered(t *testing.T, masters int, args ...string) *world {
	w := testkit.Start(t, masters, args...)
	w.TTL = disorderTTL
	return w
}

// A minority that is not in order has no vote, and is named in the log. It stops nobody: neither the processes that
// are at work nor one that starts.
func TestMinorityOutOfOrderStopsNobody(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		disturb func(w *world) (now *world, ttl time.Duration)
		says    string
	}{
		"a save from before a replacement": {
			func(w *world) (*world, time.Duration) {
				w.On(w.Server, "SAVE")
				return replaced(w), w.TTL
			}, "belongs to another set",
		},
		"a save from before a change of the TTL": {
			func(w *world) (*world, time.Duration) {
				w.On(w.Server, "SAVE")
				return w, w.TTL + time.Second
			}, "was set up for",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := disordered(t, 3)
			w.TTL = 4 * disorderTTL // a lease of it stands although a busy machine stands still
			old := w.ProcessOver(tuned)
			old.Use("x")
			now, ttl := c.disturb(w)
			require.NoError(t, old.Close())
			for _, server := range now.Servers {
				w.On(server, "DEL", "fencelock:master")
			}
			var log testkit.Log
			atWork := now.ProcessOver(tuned, rwlock.WithTTL(ttl), log.Option())
			atWork.Use("x")
			lease, err := atWork.Lock(w.Ctx, "leader")
			require.NoError(t, err)
			// A busy machine may found the set without one of its masters, which then begins with a quarantine.
			require.Eventually(t, func() bool { return holdersOn(atWork, "leader") == 3 }, time.Minute, 10*time.Millisecond)
			now.Servers[0].Restart()
			worksBeside(atWork, &log, c.says)
			worksBeside(now.ProcessOver(tuned, rwlock.WithTTL(ttl), log.Option()), &log, c.says)
			require.NoError(t, lease.Release(w.Ctx))
		})
	}
	t.Run("a replica", func(t *testing.T) {
		t.Parallel()
		w := disordered(t, 3)
		var log testkit.Log
		atWork := w.ProcessOver(tuned, log.Option())
		atWork.Use("x")
		follow(w, w.Servers[0], testredis.Start(t))
		atWork.Proxies[0].Cut()
		worksBeside(atWork, &log, "is a replica")
		worksBeside(w.ProcessOver(tuned, log.Option()), &log, "is a replica")
		follow(w, w.Servers[0], nil)
		atWork.CutOff(1)
		atWork.Use("x") // in order again, after the quarantine: it has lost what it had
	})
	t.Run("a server that nobody knows", func(t *testing.T) {
		t.Parallel()
		w := disordered(t, 3)
		w.ProcessOver(tuned).Use("x")
		other := replaced(w)
		var log testkit.Log
		worksBeside(other.ProcessOver(tuned, log.Option()), &log, "has no marker")
	})
}

// holdersOn returns on how many masters the lock has a holder.
func holdersOn(p *process, name string) (masters int) {
	state, err := p.Inspect(p.W.Ctx, name)
	for _, master := range state.Masters {
		if err == nil && len(master.Holders) > 0 {
			masters++
		}
	}
	return masters
}

// replaced is a world with another server in the place of the last.
func replaced(w *world) *world {
	now := testkit.OnServers(w.T, append(w.Servers[:2:2], testredis.Start(w))...)
	now.TTL = w.TTL
	return now
}

// worksBeside uses locks until the log names the master that is not in order, and after. No acquisition may be refused.
func worksBeside(p *process, log *testkit.Log, says string) {
	p.W.Helper()
	take := func() bool {
		lease, err := p.TryLock(p.W.Soon(30*time.Second), "daily")
		require.False(p.W, errors.Is(err, rwlock.ErrOption), "%v", err)
		return err == nil && lease.Release(p.W.Ctx) == nil
	}
	named := func() bool { return strings.Contains(log.String(), says) }
	require.Eventually(p.W, func() bool { return take() && named() }, time.Minute, 20*time.Millisecond, says)
	for range 3 { // the next surveys find the same
		time.Sleep(time.Second)
		require.Eventually(p.W, take, time.Minute, time.Millisecond)
	}
}

// One master is moved by a replica: it is copied, the copy is promoted, and clients go over to the new list one by one.
// Lists that differ in that pair would have quorums that share no server: the copy has no vote, whoever asks it.
func TestMovedMasterHasNoVote(t *testing.T) {
	t.Parallel()
	w := disordered(t, 3)
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
	for begun := time.Now(); time.Since(begun) < 2*disorderTTL; { // longer than a quarantine would last
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
	lease, err := old.Lock(w.Soon(time.Minute), "x", rwlock.WithoutRenewal())
	require.NoError(t, err)
	nobodyBeside(w, lease, next, untuned, alone)
	_, err = next.TryLock(w.Soon(time.Second), "x")
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	var abstains *rwlock.AbstainError
	require.ErrorAs(t, err, &abstains)
	require.ErrorContains(t, abstains, "is another server than the one at")
}

// Two processes name the same masters differently. One that was emptied is known by its process, also where only those
// of the other names are left.
func TestMastersOfTwoNames(t *testing.T) {
	t.Parallel()
	w := disordered(t, 3)
	var named []string
	for _, server := range w.Servers {
		_, port, err := net.SplitHostPort(server.Addr())
		require.NoError(t, err)
		named = append(named, "localhost:"+port)
	}
	founder := w.ProcessOver(tuned)
	founder.Use("x")
	require.NoError(t, founder.Close())
	w.On(w.Servers[2], "FLUSHALL")
	other := dialled(w, named)
	take := func() bool {
		lease, err := other.Lock(w.Soon(30*time.Second), "x")
		return err == nil && lease.Release(w.Ctx) == nil
	}
	require.Eventually(t, take, time.Minute, time.Millisecond)
	require.Equal(t, w.On(w.Servers[0], "HGET", "fencelock:master", "set"),
		w.On(w.Servers[2], "HGET", "fencelock:master", "set"), "it is one of the set again")
	w.Servers[0].Kill()
	require.Eventually(t, take, time.Minute, time.Millisecond, "and votes")
}

// A process has been idle while each master restarted many times. It finds them in order, and makes nobody abstain.
func TestIdleProcessMissesRestarts(t *testing.T) {
	t.Parallel()
	w := disordered(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	idle, busy := w.ProcessOver(tuned), w.ProcessOver(tuned)
	idle.Use("x")
	busy.Use("x")
	until := make([]any, len(w.Servers))
	for range 10 {
		for i, server := range w.Servers {
			server.Restart()
			require.Eventually(t, func() bool { // the restart has been noticed
				if lease, err := busy.TryLock(w.Soon(time.Second), "daily"); err == nil {
					_ = lease.Release(w.Ctx)
				}
				now, err := server.Command("HGET", "fencelock:master", "until")
				noticed := err == nil && now != until[i]
				until[i] = now
				return noticed
			}, time.Minute, 5*time.Millisecond)
		}
	}
	busy.Use("daily")
	time.Sleep(disorderTTL + 100*time.Millisecond)
	for i, server := range w.Servers {
		until[i] = w.On(server, "HGET", "fencelock:master", "until")
	}
	idle.Use("x")
	for i, server := range w.Servers {
		require.Equal(t, until[i], w.On(server, "HGET", "fencelock:master", "until"), "master %d abstains anew", i)
	}
}

// A pair fails over, and back to the server that lags. Whoever starts then has seen neither, and the marker there is
// that of its own process; but the other masters know that another process was there since.
func TestNewProcessFindsAFailback(t *testing.T) {
	t.Parallel()
	w := disordered(t, 3)
	first, second := w.Servers[1], testredis.Start(t)
	pair := testredis.NewProxy(t, first.Addr())
	becomes := func(master *testredis.Server) {
		pair.Retarget(master.Addr())
		pair.Cut()
	}
	link := testredis.NewProxy(t, w.Servers[2].Addr())
	holder := dialled(w, []string{w.Servers[0].Addr(), pair.Addr(), link.Addr()})
	holder.Use("x")
	second.ReplicaOf(first)
	awaitReplica(w, first)
	follow(w, second, nil)
	becomes(second)
	for begun := time.Now(); time.Since(begun) < disorderTTL+time.Second; time.Sleep(20 * time.Millisecond) {
		holder.Use("daily")
	}

	link.Refuse()
	link.Cut()
	lease, err := holder.Lock(w.Soon(time.Minute), "x", rwlock.WithoutRenewal())
	require.NoError(t, err)
	becomes(first) // it has gone on as a master, and its marker is its own
	away := testredis.NewProxy(t, w.Servers[0].Addr())
	away.Refuse()
	next := dialled(w, []string{away.Addr(), pair.Addr(), w.Servers[2].Addr()})
	nobodyBeside(w, lease, next)
	next.Use("x") // after the quarantine
}
