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
	"github.com/seed74116694/fencelock/scripts"
)

// A vote that was made before the connection was replaced goes out over the new one, and counts.
func TestStaleVoteOverNewConnection(t *testing.T) {
	mini := testredis.NewMini(t)
	link := mini.NewLink()
	option := link.Option()
	option.AlwaysPipelining, option.PipelineMultiplex, option.DisableCache = true, -1, true
	var hold atomic.Bool
	proceed := make(chan struct{})
	dialling := make(chan struct{}, 4)
	inner := option.DialCtxFn
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if hold.Load() {
			dialling <- struct{}{}
			<-proceed
		}
		return inner(ctx, addr, d, c)
	}
	client := dial(t, option)
	b := newBed(t, client, func(c *transport.Config) { c.Quarantine = 2 * time.Second; c.MarkerKey = "t:master" })
	mini.Miniredis().HSet("t:master", "layout", "2", "set", "S", "run", "r", "until", "0", "id", "S:r:0")
	b.SetIdentity("S:r:0", client.Dials())
	_ = scripts.Acquire
	post := func(vote string, done chan error) {
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
	}
	warm, first, second := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	post(b.Vote(1), warm)
	require.NoError(t, <-warm)
	vote := b.Vote(1) // over connection 1
	hold.Store(true)
	link.Cut()
	time.Sleep(50 * time.Millisecond)
	post(b.Vote(1), first) // makes the client dial
	<-dialling
	// posted before? the count is up at the start of the dial in this bed and in rwlock.Dial
	t.Log("vote during the dial:", b.Vote(1), "before:", vote)
	// a vote that was computed just before the dial began, queued just after
	post(vote, second)
	hold.Store(false)
	close(proceed)
	t.Log("first:", <-first)
	err := <-second
	t.Log("second:", err)
	require.Error(t, err, "a vote made for connection 1 was answered over connection 2")
}
