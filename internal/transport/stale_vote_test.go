package transport_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// A vote that was made before the connection was replaced goes out over the new one, and counts.
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
func acquireWith(b *bed, vote string) <-chan error {
	done := make(chan error, 1)
	args := acquireArgs("01ARZ3NDEKTSV4RRFFQ69G5FAV", time.Minute)
	args[0] = vote
	b.Post(transport.Call{
		Script: acquire, Keys: append(keysOf("x"), "t:master"), Args: args, Urgent: true,
		Done: func(r rueidis.RedisResult, _ clock.Instant) {
			f, err := r.AsIntSlice()
			if err == nil && f[0] != 1 {
				err = fmt.Errorf("status %d", f[0])
			}
			done <- err
		},
	})
	return done
}
