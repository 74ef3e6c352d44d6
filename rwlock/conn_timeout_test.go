package rwlock_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// patientOptions are those of users who want few PINGs, or none, and wait long for their answers.
var patientOptions = map[string]func(o *rueidis.ClientOption){
	"defaults": func(*rueidis.ClientOption) {},
	"long pauses": func(o *rueidis.ClientOption) {
		o.Dialer.KeepAlive, o.ConnWriteTimeout = 30*time.Second, time.Minute
	},
	"no keep-alive": func(o *rueidis.ClientOption) { o.Dialer.KeepAlive = -1 },
	"no TCP_NODELAY": func(o *rueidis.ClientOption) {
		o.DisableTCPNoDelay, o.Dialer.KeepAlive, o.ConnWriteTimeout = true, time.Hour, time.Hour
	},
}

// dialPatiently returns a client of rwlock.Dial over the link, with the user's options.
func dialPatiently(t *testing.T, link *testredis.Link, change func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := link.Option()
	option.Dialer, option.ConnWriteTimeout = net.Dialer{}, 0
	change(&option)
	client, err := rwlock.Dial("", option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func openLocker(t *testing.T, client rueidis.Client, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	locker := testkit.New(t, client, opts...)
	return locker
}

func dialsOf(client rueidis.Client) uint64 { return client.(interface{ Dials() uint64 }).Dials() }

// A connection that is dropped in silence when a renewal goes out over it is replaced while the lease still has time.
func TestALeaseOutlivesAConnectionThatFallsSilent(t *testing.T) {
	for name, change := range patientOptions {
		for _, ttl := range []time.Duration{5 * time.Second, 10 * time.Second, time.Minute} {
			t.Run(name+" "+ttl.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					link := testredis.NewMini(t).NewLink()
					link.Delay(25 * time.Millisecond)
					client := dialPatiently(t, link, change)
					locker := openLocker(t, client, rwlock.WithTTL(30*time.Second))
					lease, err := locker.Lock(t.Context(), "n", rwlock.WithTTL(ttl))
					require.NoError(t, err)
					for range 5 {
						before := dialsOf(client)
						<-link.MuteNextReply(testredis.Named("EVALSHA"))
						time.Sleep(ttl)
						require.NoError(t, lease.Err())
						require.Equal(t, before+1, dialsOf(client))
					}
					require.NoError(t, lease.Release(t.Context()))
				})
			})
		}
	}
}

// The same for a call: the calls after it have a new connection.
func TestACallOverASilentConnectionReplacesIt(t *testing.T) {
	for name, change := range patientOptions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := testredis.NewMini(t).NewLink()
				client := dialPatiently(t, link, change)
				ping := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					return client.Do(ctx, client.B().Echo().Message("e").Build()).Error()
				}
				require.NoError(t, ping())
				before := dialsOf(client)
				link.MuteNextReply(testredis.Named("ECHO"))
				begun := time.Now()
				require.ErrorIs(t, ping(), context.DeadlineExceeded)
				for ping() != nil {
					require.Less(t, time.Since(begun), 3*time.Second+time.Millisecond)
				}
				require.Equal(t, before+1, dialsOf(client))
			})
		})
	}
}

// A server that pauses for less than a Release waits answers every call of that time over the connection that there
// is, at any time after an earlier call, when the timer of the connection runs already.
func TestAPauseOfTheServerFailsNoCallAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := dialPatiently(t, mini.NewLink(), func(o *rueidis.ClientOption) { o.Dialer.KeepAlive = -1 })
		echo := func() error {
			return client.Do(t.Context(), client.B().Echo().Message("e").Build()).Error()
		}
		require.NoError(t, echo())
		before := dialsOf(client)
		for pause := range 10 {
			time.Sleep(10 * time.Second)
			require.NoError(t, echo())
			time.Sleep(time.Duration(pause) * 100 * time.Millisecond)
			mini.Freeze()
			time.AfterFunc(1900*time.Millisecond, mini.Thaw)
			require.NoError(t, echo(), "%d", pause)
		}
		require.Equal(t, before, dialsOf(client))
	})
}

// A link may be slower than that: how long its answers take is known from the first one on.
func TestASlowLinkIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		fast := openLocker(t, dialPatiently(t, mini.NewLink(), func(*rueidis.ClientOption) {}))
		first, err := fast.Lock(t.Context(), "n")
		require.NoError(t, err)
		time.Sleep(10 * time.Second) // the server knows the scripts by now
		require.NoError(t, first.Release(t.Context()))

		link := mini.NewLink()
		link.Delay(1100 * time.Millisecond) // each way: an answer takes longer than the least limit
		client := dialPatiently(t, link, func(o *rueidis.ClientOption) { o.Dialer.Timeout = 10 * time.Second })
		locker := openLocker(t, client, rwlock.WithTTL(30*time.Second), rwlock.WithReleaseTimeout(10*time.Second))
		before := dialsOf(client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := locker.Lock(ctx, "n")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, lease.Err())
		require.Equal(t, before, dialsOf(client))
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Neither is a connection over which nothing is sent, nor one with answers whose requests overlap.
func TestAConnectionThatAnswersIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		link.Delay(10 * time.Millisecond)
		client := dialPatiently(t, link, func(*rueidis.ClientOption) {})
		locker := openLocker(t, client, rwlock.WithTTL(time.Second))
		held, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		waiting, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { // it listens for messages, over a connection of its own
			defer close(ended)
			_, _ = locker.Lock(waiting, "n")
		}()
		time.Sleep(100 * time.Millisecond)
		before := dialsOf(client)
		for i := range 1000 {
			go client.Do(t.Context(), client.B().Ping().Build())
			time.Sleep(time.Duration(i%40) * time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.Equal(t, before, dialsOf(client))
		require.NoError(t, held.Err())
		stop()
		<-ended
	})
}

// Any client does, or New says what is wrong with it: no call goes on after its context, whatever the client's options
// and whatever became of the server.

// plainClients are clients that were not made by rwlock.Dial.
var plainClients = map[string]func(o *rueidis.ClientOption){
	"rueidis' defaults": func(o *rueidis.ClientOption) { *o = plain(o) },
	"no pipelining": func(o *rueidis.ClientOption) {
		*o = plain(o)
		o.DisableAutoPipelining = true
	},
	"many connections": func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 },
	"small ring":       func(o *rueidis.ClientOption) { o.RingScaleEachConn = 2 },
	"made for locks":   func(*rueidis.ClientOption) {},
}

// plain keeps nothing of the options but where to connect to, and what miniredis needs.
func plain(o *rueidis.ClientOption) rueidis.ClientOption {
	return rueidis.ClientOption{
		DialCtxFn: o.DialCtxFn, InitAddress: o.InitAddress, ForceSingleClient: true, DisableCache: true,
	}
}

// dialLimit is how long rueidis dials by default, whoever waits for it.
const dialLimit = 5 * time.Second

var deadEnds = map[string]func(w *world, p *process){
	"frozen server": func(w *world, _ *process) { w.Mini.Freeze() },
	"silent link":   func(_ *world, p *process) { p.Link.Blackhole(testredis.Both) },
	"cut and silent": func(_ *world, p *process) {
		p.Link.Hold(testredis.Both)
		p.Link.Cut()
	},
}

func TestNoCallOutlastsItsContextWithAnyClient(t *testing.T) {
	for kind, change := range plainClients {
		for fault, strike := range deadEnds {
			t.Run(kind+", "+fault, func(t *testing.T) {
				inFakeTime(t, func(w *world) { outlast(w, change, strike) })
			})
		}
	}
}

func outlast(w *world, change func(*rueidis.ClientOption), strike func(*world, *process)) {
	link := w.NewLink()
	option := link.Option()
	change(&option)
	client, err := rueidis.NewClient(option)
	require.NoError(w, err)
	w.Cleanup(client.Close)
	locker, err := rwlock.New(client)
	if err != nil {
		require.ErrorIs(w, err, rwlock.ErrOption)
		require.ErrorContains(w, err, "Dial", "what to do instead")
		return
	}
	w.Cleanup(func() { _ = locker.Close() })
	p := &process{Locker: locker, Link: link, Links: []*testredis.Link{link}, Client: client, W: w}
	held := p.Take("held", rwlock.Write)
	strike(w, p)
	const limit, slack = 100 * time.Millisecond, 20 * time.Millisecond
	within := func(what string, most time.Duration, call func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(w.Ctx, limit)
		defer cancel()
		start := time.Now()
		call(ctx)
		require.LessOrEqual(w, time.Since(start), most+slack, what)
	}
	for range 2 { // the first finds the trouble, the second knows of it
		for how, take := range acquisitions(p.Locker) {
			within(how, limit, func(ctx context.Context) { _, _ = take(ctx, "other") })
		}
		within("Renew", limit, func(ctx context.Context) { _ = held.Renew(ctx) })
		within("Inspect", limit, func(ctx context.Context) { _, _ = p.Inspect(ctx, "other") })
	}
	within("Release", 2*time.Second, func(ctx context.Context) { _ = held.Release(ctx) })
	within("Close", 2*time.Second+dialLimit, func(context.Context) { _ = p.Close() })
	w.Mini.Thaw()
	p.Link.Restore()
}
