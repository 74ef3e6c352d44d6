package reentrant_test

import (
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// Over a quorum a nested acquisition counts and joins as on one master.
func TestNestingOverAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minis := []*testredis.Mini{testredis.NewMini(t), testredis.NewMini(t), testredis.NewMini(t)}
		first, second := quorumProcess(t, minis), quorumProcess(t, minis)
		for _, tt := range combinations {
			ctx, owner := owned(t)
			outer := must(t)(first.take(ctx, "a", tt.outer, false))
			for _, process := range []*process{first, second} {
				there := elsewhere(t, owner)
				nested, err := process.take(there, "a", tt.nested, false)
				require.ErrorIs(t, err, tt.want)
				if tt.want == nil {
					require.Equal(t, outer.Token(), nested.Token())
				}
				require.NoError(t, nested.Release(there))
			}
			require.NoError(t, outer.Release(ctx))
		}

		_, owner := owned(t)
		there := elsewhere(t, owner)
		claiming := fencing.NewContext(there, fencing.Fence{Resource: "b", Token: 17, Mode: fencing.Write})
		_, err := second.Lock(claiming, "b")
		requireLost(t, err, "b", 17, rwlock.Taken)
		hold := must(t)(second.Lock(there, "b"))
		require.NoError(t, hold.Release(there))
	})
}

func quorumProcess(t *testing.T, minis []*testredis.Mini) *process {
	t.Helper()
	var clients []rueidis.Client
	for _, mini := range minis {
		clients = append(clients, mini.Client(t))
	}
	remote, err := redlock.New(clients)
	require.NoError(t, err)
	t.Cleanup(func() { _ = remote.Close() })
	return &process{reentrant.New(remote), remote}
}
