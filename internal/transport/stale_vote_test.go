package transport_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// A vote that was made before the connection was replaced goes out over the new one, and does not count.
func TestStaleVoteOverNewConnection(t *testing.T) {
	mini := testredis.NewMini(t)
	link := mini.NewLink()
	option := link.Option()
	option.AlwaysPipelining, option.PipelineMultiplex, option.DisableCache = true, -1, true
	held := holdDials(&option)
	client := dial(t, option)
	b := newBed(t, client, func(c *transport.Config) { c.Quarantine = 2 * time.Second; c.MarkerKey = "t:master" })
	mini.Miniredis().HSet("t:master", "layout", "2", "set", "S", "run", "r", "until", "0", "id", "S:r:0")
	b.SetIdentity("S:r:0", client.Dials())
	require.NoError(t, <-acquireWith(b, b.Vote(1)))
	vote := b.Vote(1) // over connection 1
	held.on.Store(true)
	link.Cut()
	time.Sleep(50 * time.Millisecond)
	first := acquireWith(b, b.Vote(1)) // makes the client dial
	<-held.dialling
	second := acquireWith(b, vote) // the vote was made before the dial began, and is queued after
	held.on.Store(false)
	close(held.proceed)
	<-first
	require.Error(t, <-second, "a vote made for connection 1 was answered over connection 2")
}

// The master is another process, and a script that was sent whole could not remove the id from the marker. So the
// process knows the script, and runs a vote that was made for the earlier one. Its answer does not count, nor does a
// hand-off, until the marker has been read over the new connection.
func TestStaleVoteOfEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		run, refuses := "a", false
		mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
			switch {
			case cmd == "INFO":
				peer.WriteBulk("run_id:" + run + "\r\n")
			case cmd == "HDEL" && refuses:
				peer.WriteError("NOREPLICAS Not enough good replicas to write.")
			default:
				return false
			}
			return true
		})
		link := mini.NewLink()
		client := dial(t, link.Option())
		b := newBed(t, client, func(c *transport.Config) { c.Quarantine = 2 * time.Second; c.MarkerKey = "t:master" })
		mini.Miniredis().HSet("t:master", "layout", "2", "set", "S", "run", "a", "until", "0", "id", "S:a:0")
		b.SetIdentity("S:a:0", client.Dials())
		vote := b.Vote(1)
		require.True(t, b.Identified())

		run, refuses = "b", true
		mini.FlushScripts()
		link.Cut()
		synctest.Wait()
		other := mini.Client(t)
		keys := append(keysOf("x"), "t:master")
		checks := vote
		checks.Check = true
		args := slices.Insert(acquireArgs("01ARZ3NDEKTSV4RRFFQ69G5FAV", time.Minute),
			wire.VoteAt(scripts.Acquire), checks.Arg())
		whole := other.B().Eval().Script(scripts.Source(scripts.Acquire)).Numkeys(2).Key(keys...).Arg(args...).Build()
		require.ErrorContains(t, other.Do(t.Context(), whole).Error(), "NOREPLICAS")
		require.Equal(t, "S:a:0", mini.Miniredis().HGet("t:master", "id"))
		load := other.B().ScriptLoad().Script(scripts.Source(scripts.Acquire)).Build()
		require.NoError(t, other.Do(t.Context(), load).Error()) // Redis keeps also a script that failed
		refuses = false

		err := <-acquireWith(b, vote)
		require.True(t, transport.StaleMarker(err), "%v", err)
		require.True(t, mini.Miniredis().Exists("t:{x}"), "the script ran by its digest, and granted the lock")
		require.False(t, b.Identified())
		require.ErrorContains(t, <-acquireWith(b, b.Vote(1)), fmt.Sprint("status ", wire.Changed))
	})
}

// heldDials keeps the dials of a client that begin while it is on.
type heldDials struct {
	on                atomic.Bool
	dialling, proceed chan struct{}
}

func holdDials(option *rueidis.ClientOption) *heldDials {
	h := &heldDials{dialling: make(chan struct{}, 4), proceed: make(chan struct{})}
	inner := option.DialCtxFn
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if h.on.Load() {
			h.dialling <- struct{}{}
			<-h.proceed
		}
		return inner(ctx, addr, d, c)
	}
	return h
}

// acquireWith asks for a lock with that vote. The channel gets an error if it is not granted.
func acquireWith(b *bed, vote wire.Vote) <-chan error {
	done := make(chan error, 1)
	args := acquireArgs("01ARZ3NDEKTSV4RRFFQ69G5FAV", time.Minute)
	b.Post(transport.Call{
		Script: acquire, Keys: append(keysOf("x"), "t:master"), Vote: vote, Args: args, Urgent: true,
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, _ clock.Instant) {
			f, err := wire.ReadAcquire(r)
			if err == nil && f.Status != wire.Granted {
				err = fmt.Errorf("status %d", f.Status)
			}
			done <- err
		}),
	})
	return done
}
