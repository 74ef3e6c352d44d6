package transport_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// A replica that is away is waited for once. Calls after that are refused unsent, until it has caught up.
func TestAReplicaThatIsAwayIsWaitedForOnce(t *testing.T) {
	const timeout = time.Second
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		var away atomic.Bool
		mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
			switch {
			case cmd != "WAIT":
			case !away.Load():
				peer.WriteInt(1)
			default:
				given, err := strconv.Atoi(args[1])
				assert.NoError(t, err)
				time.Sleep(time.Duration(given) * time.Millisecond)
				peer.WriteInt(0)
			}
			return cmd == "WAIT"
		})
		link := mini.NewLink()
		b := newBed(t, link.Client(t), func(cfg *transport.Config) { cfg.Replicas, cfg.ReplicaTimeout = 1, timeout })
		call := func(id int) (took time.Duration, err error) {
			var done outcomes
			c := done.call(id, true)
			c.Replicated = true
			begun := b.now().Mono
			b.Post(c)
			require.Eventually(t, func() bool {
				all := done.take()
				if len(all) > 0 {
					err = all[0].err
				}
				return len(all) > 0
			}, time.Minute, time.Millisecond)
			return b.now().Mono - begun, err
		}
		mustConfirm := func(id int) {
			_, err := call(id)
			require.NoError(t, err)
		}
		mustConfirm(0)
		away.Store(true)
		took, err := call(1)
		var short *transport.Unreplicated
		require.ErrorAs(t, err, &short)
		require.False(t, transport.DidNotRun(err))
		require.GreaterOrEqual(t, took, timeout)
		sent := link.Calls("EVALSHA")
		for id := range 3 {
			took, err = call(2 + id)
			require.ErrorAs(t, err, &short)
			require.True(t, transport.DidNotRun(err), "%v after %v", err, took)
			require.ErrorContains(t, err, "0 of 1 required replicas")
			require.Less(t, took, timeout/10)
		}
		require.Equal(t, sent, link.Calls("EVALSHA"))
		require.False(t, b.Failing(), "the server answers")
		away.Store(false)
		mustConfirm(5)
		mustConfirm(6)
	})
}
