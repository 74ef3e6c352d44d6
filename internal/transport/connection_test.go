package transport_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// An idle connection is tested each second, or as often as its user says if that is more often.
func TestIdleConnectionsAreTested(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{
		-1: time.Second, 0: time.Second, time.Millisecond: time.Millisecond, time.Minute: time.Second,
	} {
		var o rueidis.ClientOption
		o.Dialer.KeepAlive, o.Sentinel.Dialer.KeepAlive = said, said
		o = transport.Tuned(o)
		require.Equal(t, []time.Duration{want, want}, []time.Duration{o.Dialer.KeepAlive, o.Sentinel.Dialer.KeepAlive})
	}
}

// A connection on which nobody has ever waited with a context is in synchronous mode: a deadline would close it.
func TestACallersEndClosesNobodysConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		option := plain(link)
		option.PipelineMultiplex = -1
		client := dial(t, option)
		b := newBed(t, client)
		b.mustDo()
		link.Cut()
		synctest.Wait()
		link.DelayNextReply(testredis.Named("EVALSHA"), time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.do(ctx), context.DeadlineExceeded)
		require.EqualValues(t, 2, client.Dials(), "it was sent over a new connection")
		time.Sleep(time.Second)
		b.mustDo()
		require.EqualValues(t, 2, client.Dials(), "which stands")
	})
}

type steps []func(*testing.T, *bed)

func TestACallerSendsByItselfOnlyWhereItNeedNotDial(t *testing.T) {
	for name, test := range map[string]struct {
		client string
		warm   int
		then   steps
		aside  bool
	}{
		"first call":                        {"from rwlock.Dial", 0, nil, true},
		"answered a moment ago":             {"from rwlock.Dial", 1, nil, false},
		"answered some time ago":            {"from rwlock.Dial", 1, steps{wait}, true},
		"another's call was not":            {"from rwlock.Dial", 1, steps{unanswered}, true},
		"several connections, not warm":     {"plain", 63, nil, true},
		"several connections, warm":         {"plain", 64, nil, false},
		"unanswered, and answered since":    {"from rwlock.Dial", 1, steps{unanswered, answered}, false},
		"a call failed":                     {"from rwlock.Dial", 1, steps{failed}, true},
		"a call of the pipeline failed":     {"from rwlock.Dial", 1, steps{failedInPipeline}, true},
		"several, few answers since":        {"plain", 64, steps{unanswered, answered}, true},
		"several, few since a failure":      {"plain", 64, steps{failed, answered}, true},
		"several, few since the pipeline's": {"plain", 64, steps{failedInPipeline, answered}, true},
		"several, and one has failed":       {"plain", 64, steps{unanswered}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBedOf(t, clients[test.client], func(t *testing.T, b *bed) {
				for range test.warm {
					b.mustDo()
				}
				for _, then := range test.then {
					then(t, b)
				}
				before := b.aside.Load()
				b.mustDo()
				require.Equal(t, test.aside, b.aside.Load() > before)
			})
		})
	}
}

func wait(*testing.T, *bed) { time.Sleep(100 * time.Millisecond) }

func answered(_ *testing.T, b *bed) { b.mustDo() }

// unanswered is a call whose caller had no time.
func unanswered(t *testing.T, b *bed) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, b.do(ctx), context.Canceled)
}

// failed is a call whose connection broke before its reply.
func failed(t *testing.T, b *bed) {
	b.link.DropNextReply(testredis.Named("EVALSHA"))
	require.Error(t, b.do(context.Background()))
	time.Sleep(urgentGap)
}

func failedInPipeline(t *testing.T, b *bed) {
	b.link.DropNextReply(testredis.Named("EVALSHA"))
	b.Post(b.call(0, true))
	synctest.Wait()
	require.Error(t, b.take()[0].err)
	time.Sleep(urgentGap)
}

func TestALostSubscriptionMeansThatTheConnectionMayBeLostToo(t *testing.T) {
	inBedOf(t, clients["from rwlock.Dial"], func(t *testing.T, b *bed) {
		b.Listen("")
		<-b.listens
		b.mustDo()
		b.link.Cut()
		synctest.Wait()
		before := b.aside.Load()
		_ = b.do(context.Background())
		require.Greater(t, b.aside.Load(), before)
	})
}

func TestAMachineThatWasSuspendedHasNoConnectionToTrust(t *testing.T) {
	var slept atomic.Int64 // senders read the clock at any moment
	inBedOf(t, clients["from rwlock.Dial"], func(t *testing.T, b *bed) {
		b.mustDo()
		before := b.aside.Load()
		slept.Store(int64(time.Hour))
		b.mustDo()
		require.Greater(t, b.aside.Load(), before)
	}, func(cfg *transport.Config) {
		system := cfg.Clock
		cfg.Clock = func() (time.Duration, time.Time) {
			mono, wall := system()
			return mono, wall.Add(time.Duration(slept.Load()))
		}
	})
}

// A replica that is away is waited for once. Calls after that are refused unsent, until it has caught up.
func TestAReplicaThatIsAwayIsWaitedForOnce(t *testing.T) {
	const timeout = time.Second
	inBed(t, func(t *testing.T, b *bed) {
		var away atomic.Bool
		b.mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
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
		call := func(id int) (took time.Duration, err error) {
			c := b.call(id, true)
			c.Replicated = true
			begun := b.now().Mono
			b.Post(c)
			require.Eventually(t, func() bool {
				all := b.take()
				if len(all) > 0 {
					err = all[0].err
				}
				return len(all) > 0
			}, time.Minute, time.Millisecond)
			return b.now().Mono - begun, err
		}
		mustConfirm := func(id int) {
			expect.NoError(call(id)).In(t)
		}
		mustConfirm(0)
		away.Store(true)
		took, err := call(1)
		var short *transport.Unreplicated
		require.ErrorAs(t, err, &short)
		require.False(t, transport.DidNotRun(err))
		require.GreaterOrEqual(t, took, timeout)
		sent := b.link.Calls("EVALSHA")
		for id := range 3 {
			took, err = call(2 + id)
			require.ErrorAs(t, err, &short)
			require.True(t, transport.DidNotRun(err), "%v after %v", err, took)
			require.ErrorContains(t, err, "0 of 1 required replicas")
			require.Less(t, took, timeout/10)
		}
		require.Equal(t, sent, b.link.Calls("EVALSHA"))
		require.False(t, b.Failing(), "the server answers")
		away.Store(false)
		mustConfirm(5)
		mustConfirm(6)
	}, func(cfg *transport.Config) { cfg.Replicas, cfg.ReplicaTimeout = 1, timeout })
}

// rueidis sends a call again whose connection has reached the end of its lifetime, although the call may have run. So
// only a client that is known to have no such connections sends each call once.
func TestAClientWhoseConnectionsEndSendsAgain(t *testing.T) {
	for _, tt := range []struct {
		lifetime time.Duration
		dial     func(rueidis.ClientOption) (rueidis.Client, error)
		again    bool
	}{
		{0, transport.Dial, false},
		{time.Minute, transport.Dial, true},
		{0, rueidis.NewClient, true}, // its options are not known
	} {
		inBubble := func(t *testing.T) {
			option := transport.Tuned(testredis.NewMini(t).NewLink().Option())
			option.ConnLifetime = tt.lifetime
			client := expect.NoError(tt.dial(option)).In(t)
			defer client.Close()
			require.Equal(t, tt.again, newBed(t, client).SendsAgain())
		}
		synctest.Test(t, inBubble)
	}
}
