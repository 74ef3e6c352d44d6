package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A slot that is left on its way from one node to another, with nothing moved or with some keys moved: leases there
// are renewed and given back, writers still follow each other, and nobody enters beside a hold. What has to wait gets
// in after the move.
func TestASlotThatIsLeftMoving(t *testing.T) {
	t.Parallel() // it waits for more than a TTL
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	for what, moved := range map[string]func(m *testredis.Move, lock string){
		"nothing moved":               func(*testredis.Move, string) {},
		"the lock moved":              func(m *testredis.Move, lock string) { m.Key(lock) },
		"all that is there moved":     func(m *testredis.Move, _ string) { m.Keys() },
		"the readers' expiries moved": func(m *testredis.Move, lock string) { m.Key(lock + ":h") },
	} {
		for _, mode := range bothModes {
			t.Run(what+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				cluster := cluster.For(t)
				w := testkit.OnGroup(t, cluster)
				w.TTL = 5 * time.Second
				leftMoving(w, cluster, what, mode, moved)
			})
		}
	}
}

// The same where each grant and each renewal counts with a replica of the node that answers.
func TestASlotThatIsLeftMovingWithReplicas(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, redisBinary(t), 1)
	for what, moved := range map[string]func(m *testredis.Move, lock string){
		"nothing moved":           func(*testredis.Move, string) {},
		"all that is there moved": func(m *testredis.Move, _ string) { m.Keys() },
	} {
		for _, mode := range bothModes {
			t.Run(what+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				cluster := cluster.For(t)
				w := testkit.OnGroup(t, cluster)
				w.TTL = 10 * time.Second
				w.Opts = []rwlock.Option{rwlock.WithReplicas(1, 3*time.Second)}
				leftMoving(w, cluster, what, mode, moved)
			})
		}
	}
}

func leftMoving(
	w *world, cluster *testredis.Cluster, name string, mode rwlock.Mode, moved func(*testredis.Move, string),
) {
	split := mode == rwlock.Read && (name == "the lock moved" || name == "the readers' expiries moved")
	name += ", " + mode.String()
	lock := "fencelock:{" + name + "}"
	p, q := w.Process(), w.Process()
	held := p.Take(name, mode)
	slot := cluster.Slot(lock)
	move := cluster.BeginMove(slot, cluster.Another(cluster.Owner(slot)))
	moved(move, lock)
	if split { // the keys of one lock on two nodes, as for a moment in every move: everybody waits
		next := q.Acquire(w.Ctx, name, rwlock.Write)
		_, err := p.TryLock(w.Ctx, name)
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.False(w, rwlock.Indeterminate(err))
		move.End()
		require.True(w, next.IsWaiting())
		w.Release(held)
		w.Release(next.Granted())
		return
	}
	w.Eventually("it is renewed for longer than a TTL", func() bool {
		require.NoError(w, held.Err())
		return p.Stats().Renewed > 3
	})
	_, err := q.TryLock(w.Ctx, name)
	require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	next := q.Acquire(w.Ctx, name, rwlock.Write)
	w.Release(held)
	w.Release(next.Granted())
	reader := p.Acquire(w.Ctx, name, rwlock.Read)
	move.End()
	w.Release(reader.Granted())
}
