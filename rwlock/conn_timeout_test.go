package rwlock_test

import (
	"context"
	"net"
	"runtime"
	"sync"
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
	return dial(t, "", option)
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
					locker := testkit.New(t, client, rwlock.WithTTL(30*time.Second))
					lease := got(locker.Lock(t.Context(), "n", rwlock.WithTTL(ttl))).orFail(t)
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

// A link may be slower than that: how long its answers take is known from the first one on.
func TestASlowLinkIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		fast := testkit.New(t, dialPatiently(t, mini.NewLink(), func(*rueidis.ClientOption) {}))
		first := got(fast.Lock(t.Context(), "n")).orFail(t)
		time.Sleep(10 * time.Second) // the server knows the scripts by now
		require.NoError(t, first.Release(t.Context()))

		link := mini.NewLink()
		link.Delay(1100 * time.Millisecond) // each way: an answer takes longer than the least limit
		client := dialPatiently(t, link, func(o *rueidis.ClientOption) { o.Dialer.Timeout = 10 * time.Second })
		locker := testkit.New(t, client, rwlock.WithTTL(30*time.Second), rwlock.WithReleaseTimeout(10*time.Second))
		before := dialsOf(client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease := got(locker.Lock(ctx, "n")).orFail(t)
		time.Sleep(time.Minute)
		require.NoError(t, lease.Err())
		require.Equal(t, before, dialsOf(client))
		require.NoError(t, lease.Release(t.Context()))
	})
}

// No call goes on after its context, whatever the client's options, or New says what is wrong with the client.

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
	client := got(rueidis.NewClient(option)).orFail(w)
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
		ctx := w.Soon(limit)
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

// A server stands still while callers with short deadlines go on asking. What they have given up before it left is
// never sent, so it costs neither memory meanwhile nor time afterwards: another process has the lock at once.
func TestCallersThatGiveUpLeaveNothingBehind(t *testing.T) {
	for _, plain := range []bool{false, true} {
		inFakeTime(t, func(w *world) {
			p := w.ProcessOver(testkit.Net{Tuned: !plain})
			for range 70 { // all connections stand
				p.WarmUp()
			}
			other := w.Process()
			other.WarmUp()
			const callers = 20
			before := runtime.NumGoroutine()
			w.Mini.Freeze()
			w.ResetCalls()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for begun := time.Now(); time.Since(begun) < 3*time.Second; {
						ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Millisecond)
						lease, err := p.Lock(ctx, "x")
						cancel()
						if err == nil {
							w.Release(lease)
						}
					}
				})
			}
			all.Wait()
			require.Less(w, runtime.NumGoroutine(), before+5*callers)
			w.Mini.Thaw()
			begun := time.Now()
			lease := got(other.Lock(w.Ctx, "x")).orFail(w)
			require.Less(w, time.Since(begun), 100*time.Millisecond)
			w.Release(lease)
			w.Pass(w.TTL)
			require.Less(w, w.ScriptCalls()[0], 10*callers, "of 12,000 attempts")
		})
	}
}

// A waiter gives up while its server cannot be reached. The message that hands it the lock has it released at once.
func TestAHandOffToAWaiterThatGaveUpIsReleasedAtOnce(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		for range 10 {
			holder := w.Process().Take("n", rwlock.Write)
			ctx, cancel := context.WithCancel(w.Ctx)
			waiter := p.Acquire(ctx, "n", rwlock.Write)
			w.UntilWaiting("n", 1)
			next := w.Process().Queue("n", rwlock.Write)
			struck := p.Link.DropNextCommand(testkit.Running("release"))
			p.Link.Refuse() // new connections; messages arrive over one that stands
			cancel()
			<-struck
			require.Error(w, waiter.Failed())
			w.Pass(1500 * time.Millisecond)
			p.Link.Restore()
			begun := time.Now()
			w.Release(holder)
			w.Release(next.Granted())
			require.Less(w, time.Since(begun), 50*time.Millisecond)
		}
	}))
}

// Two lockers may share a client that has room for one subscription.
func TestCloseWithOneBlockingConnection(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	option := server.Option()
	option.BlockingPoolSize = 1
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	var lockers []*rwlock.Locker
	for _, prefix := range []string{"a", "b"} {
		locker := got(rwlock.New(client, rwlock.WithPrefix(prefix), rwlock.WithTTL(2*time.Second))).orFail(t)
		lockers = append(lockers, locker)
		held, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		over := inTurn(t.Context(), locker.Lock, "n")
		untilWaiting(t, locker)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-over)
	}
	closed := make(chan error, 1)
	go func() { closed <- lockers[1].Close() }()
	require.Eventually(t, func() bool { return len(closed) == 1 }, 10*time.Second, time.Millisecond,
		"Close waits for the other locker's connection")
	require.NoError(t, lockers[0].Close())
}
