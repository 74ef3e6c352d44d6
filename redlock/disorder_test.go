package redlock_test

import (
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
