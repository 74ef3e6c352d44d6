package transport_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/rwlock"
)

// plain is what a user passes who knows nothing of locks: several connections, no pipeline while only one calls.
func plain(link *testredis.Link) rueidis.ClientOption {
	tuned := link.Option()
	return rueidis.ClientOption{
		InitAddress: tuned.InitAddress, ForceSingleClient: true, DisableCache: true, DialCtxFn: tuned.DialCtxFn,
	}
}

var clients = map[string]func(*testing.T, *testredis.Link) rueidis.Client{
	"plain": func(t *testing.T, link *testredis.Link) rueidis.Client {
		client, err := rueidis.NewClient(plain(link))
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return client
	},
	"tuned": func(t *testing.T, link *testredis.Link) rueidis.Client { return link.Client(t) },
	"from rwlock.Dial": func(t *testing.T, link *testredis.Link) rueidis.Client {
		client, err := rwlock.Dial("mini:6379", plain(link))
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return client
	},
}

func TestACallerLeavesWhenItsContextEnds(t *testing.T) {
	for name, client := range clients {
		for _, warm := range []int{0, 1, 200} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mini := testredis.NewMini(t)
					b := newBed(t, client(t, mini.NewLink()))
					for range warm {
						b.mustDo()
					}
					mini.Freeze()
					defer mini.Thaw()
					for range 10 {
						ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
						begun := time.Now()
						require.ErrorIs(t, b.do(ctx), context.DeadlineExceeded)
						require.Equal(t, 50*time.Millisecond, time.Since(begun))
						cancel()
					}
				})
			})
		}
	}
}

func TestWhatACallerLeavesBehindIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		b := newBed(t, link.Client(t))
		mini.Freeze()
		keys, args := keysOf("mine"), []string{"-"}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		b.Do(ctx, refresh, keys, wire.Vote{}, args)
		var seen []string
		link.OnCommand(func(cmd []string) {
			if cmd[0] == "EVALSHA" || cmd[0] == "EVAL" {
				seen = append(seen, cmd[3])
			}
		})
		copy(keys, keysOf("another's"))
		mini.Thaw()
		synctest.Wait()
		mine := keysOf("mine")[0]
		require.Equal(t, []string{mine, mine}, seen, "by digest, and then whole")
	})
}

func TestTheCallOfACallerWhoLeftGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		link.Hold(testredis.Both)
		link.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.do(ctx), context.DeadlineExceeded)
		link.Restore() // the dial that it began comes about
		synctest.Wait()
		require.Equal(t, 1, link.Calls("EVALSHA"))
	})
}

func TestACallerThatWaitsLongIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		silences := make(chan error, 10)
		b := newBed(t, mini.Client(t), func(cfg *transport.Config) {
			cfg.OnSlowCall = func(_ *transport.Master, _ *transport.Node, err error) { silences <- err }
		})
		mini.Freeze()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		b.tasks.Go(func() { _ = b.do(ctx) })
		require.Equal(t, &transport.NoReply{After: time.Second}, <-silences)
		require.Equal(t, time.Second, time.Since(begun))
		time.Sleep(time.Second)
		require.Empty(t, silences, "once")
		mini.Thaw()
	})
}

func TestAServerThatForgotItsScriptsGetsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		b := newBed(t, mini.Client(t))
		b.mustDo()
		require.Equal(t, 1, mini.Calls("EVAL"))
		b.mustDo()
		require.Equal(t, 1, mini.Calls("EVAL"))
		mini.FlushScripts()
		b.mustDo()
		require.Equal(t, 2, mini.Calls("EVAL"))
		require.Equal(t, 3, mini.Calls("EVALSHA"))
	})
}

func TestTrustIsCountedFromTheRequestThatRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		link.Delay(10 * time.Millisecond)
		begun := b.now().Mono
		_, sent := b.Do(context.Background(), refresh, keysOf("any"), wire.Vote{}, nil)
		require.Equal(t, 20*time.Millisecond, sent.Mono-begun, "that with the source")
		begun = b.now().Mono
		_, sent = b.Do(context.Background(), refresh, keysOf("any"), wire.Vote{}, nil)
		require.Equal(t, begun, sent.Mono)
	})
}

func TestTheTimeLimitOfADialIsNotTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		b.mustDo()
		link.Blackhole(testredis.Both)
		link.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := b.do(ctx)
		require.Error(t, err)
		require.False(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled), "%v", err)
		require.ErrorContains(t, err, "not connected: dial timed out after 1s")
		link.Restore()
	})
}

func TestADialThatTimedOutCarriedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
			broken := &net.OpError{Op: "dial", Net: "tcp", Err: cause}
			b := newBed(t, &brokenClient{testredis.NewMini(t).Client(t), broken})
			err := b.do(context.Background())
			require.NotErrorIs(t, err, cause, "it is not the end of this caller's context")
			require.True(t, transport.DidNotRun(err))
		}
	})
}

// brokenClient is a client whose every call ends with one error.
type brokenClient struct {
	rueidis.Client
	err error
}

func (c *brokenClient) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	return rueidis.NewErrorResult(c.err)
}
