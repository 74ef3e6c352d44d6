package rwlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// durationOf is an attribute of a record.
func durationOf(r slog.Record, key string) (d time.Duration) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			d = a.Value.Duration()
		}
		return a.Key != key
	})
	return d
}

// A server that refuses those who wait for long is told of, by the log, by Trace and by Stats, and so is the end.
func TestARefusalThatLastsIsTold(t *testing.T) {
	for _, refusal := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"LOADING Redis is loading the dataset in memory",
	} {
		subtestInFakeTime(t, strings.Fields(refusal)[0], func(w *world) {
			var book testkit.Log
			var told testkit.Notes[error]
			p := w.Process(book.Option(), rwlock.WithTrace(&rwlock.Trace{
				Unreachable: func(_ context.Context, _ rwlock.TraceEvent, err error) { told.Add(err) },
			}))
			p.WarmUp()
			w.Mini.Miniredis().SetError(refusal)
			waiting := []*pending{p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Ctx, "m", rwlock.Read)}
			w.Pass(900 * time.Millisecond)
			require.Zero(w, p.Stats().Unreachable)
			require.Empty(w, book.Records("refuses"))
			w.Pass(600 * time.Millisecond)
			require.Equal(w, 2, p.Stats().Unreachable)
			w.Pass(8 * time.Second)
			require.Len(w, book.Records("a server refuses its waiters"), 1)
			require.NotEmpty(w, told.All())
			for _, err := range told.All() {
				require.ErrorContains(w, err, refusal)
			}
			require.Empty(w, book.Records("s again"))

			w.Mini.Miniredis().SetError("")
			for _, a := range waiting {
				w.Release(a.Granted())
			}
			require.Zero(w, p.Stats().Unreachable)
			w.Settle()
			back := book.Records("a server answers its waiters again")
			require.Len(w, back, 1)
			require.Equal(w, slog.LevelInfo, back[0].Level)
			require.InDelta(w, 9.5, durationOf(back[0], "after").Seconds(), 0.1)
		})
	}
}

// The answer to one kind of request says nothing about another: a server that is out of memory refuses acquires and
// serves refreshes. Those whose requests it refuses ask 25 times a second, and are told of and counted.
func TestARefusalEndsWithItsOwnKind(t *testing.T) {
	const refusal = "OOM command not allowed when used memory > 'maxmemory'."
	for refused, unreachable := range map[scripts.Name]int{scripts.Acquire: 1, scripts.Refresh: 2} {
		subtestInFakeTime(t, string(refused), withTwo(func(w *world, p, q *process) {
			held := q.Take("n", rwlock.Write)
			first := p.Queue("n", rwlock.Write)
			calls := make(map[scripts.Name]int)
			var mu sync.Mutex
			p.Link.Delay(time.Millisecond) // without a round trip a loop of requests would stop fake time
			p.Link.Deny(func(cmd []string) string {
				mu.Lock()
				defer mu.Unlock()
				name := w.ScriptOf(cmd)
				if calls[name]++; name == refused {
					return refusal
				}
				return ""
			})
			w.Pass(w.Refresh()) // the first refresh, which may be refused
			second := p.Acquire(w.Ctx, "n", rwlock.Write)
			w.Pass(900 * time.Millisecond)
			for range 4 {
				_, err := p.Lock(w.Soon(100*time.Millisecond), "n") // its request is served, or refused as that of the second one
				require.Error(w, err)
				w.Pass(500 * time.Millisecond)
				require.Equal(w, unreachable, p.Stats().Unreachable)
			}
			w.Pass(10 * time.Second)
			mu.Lock()
			require.Less(w, calls[scripts.Acquire], 400)
			require.Less(w, calls[scripts.Refresh], 400)
			mu.Unlock()
			p.Link.Deny(nil)
			w.Release(first.GrantedAfter(held))
			w.Release(second.Granted())
			require.Zero(w, p.Stats().Unreachable)
		}))
	}
}

// A server that does not answer has one line, about the waiters or the leases, and its return another one, with how
// long it was gone.
func TestTheEndOfAnOutageIsTold(t *testing.T) {
	type fault struct {
		waits      bool
		begin, end string
	}
	eachInFakeTime(t, map[string]fault{
		"waiters": {true, "a server does not answer its waiters", "a server answers its waiters again"},
		"leases":  {false, "server does not renew leases", "a server renews leases again"},
	}, func(w *world, c fault) {
		const gone = 5 * time.Second
		var book testkit.Log
		p := w.Process(book.Option())
		held := p.Take("held", rwlock.Write)
		other := w.Process().Take("n", rwlock.Write)
		var waiting *pending
		if c.waits {
			waiting = p.Acquire(w.Ctx, "n", rwlock.Write)
		}
		w.Settle()
		p.CutOff(0)
		w.Pass(gone)
		require.Len(w, book.Records(""), 1)
		require.Len(w, book.Records(c.begin), 1)
		p.Link.Restore()
		w.Pass(w.TTL)
		if c.waits {
			w.Release(waiting.GrantedAfter(other))
		}
		require.NoError(w, held.Err())
		lines := book.Records("")[1:]
		require.Len(w, lines, 1)
		require.Equal(w, c.end, lines[0].Message)
		require.Equal(w, slog.LevelInfo, lines[0].Level)
		require.Positive(w, durationOf(lines[0], "after"))
		require.LessOrEqual(w, durationOf(lines[0], "after"), gone+w.Refresh())
	})
}

// A client that was closed is not coming back: whoever waits with it ends, and nothing is tried for ever.
func TestAClosedClientEndsTheWaiting(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		for _, queued := range []bool{true, false} {
			p := w.Process()
			mine := p.Take(fmt.Sprint("mine", queued), rwlock.Write)
			var waiting []*pending
			if queued {
				waiting = append(waiting, p.Queue("n", rwlock.Write), p.Queue("n", rwlock.Read))
				p.Client.Close()
			} else {
				p.Client.Close()
				waiting = append(waiting, p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Ctx, "free", rwlock.Read))
			}
			for _, a := range waiting {
				closed := time.Now()
				expect.Fails(w, a.Failed(), rwlock.ErrNoQuorum, rueidis.ErrClosing, "the client of this locker was closed")
				w.RequireLess(a.At.Sub(closed), w.Refresh()+time.Millisecond, "one refresh at the most")
			}
			err := mine.Release(w.Ctx)
			require.ErrorContains(w, err, "the client of this locker was closed")
			require.NotContains(w, err.Error(), "failed a moment ago", "it failed for good")
			require.NoError(w, p.Close())
		}
		w.Release(held)
	})
}

// Trace tells of a waiter whose Redis cannot be reached, at intervals that grow. Stats counts such waiters.
func TestUnreachableRedisIsTracedAndCounted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var told testkit.Notes[time.Time]
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ context.Context, e rwlock.TraceEvent, err error) {
			told.Add(time.Now())
			if err == nil || e.Hold == "" {
				w.Errorf("told of %+v without a cause", e)
			}
		}}))
		p.WarmUp()
		require.Zero(w, p.Stats().Unreachable)
		p.Die()
		begun := time.Now()
		ctx, cancel := context.WithCancel(w.Ctx)
		waiters := []*pending{p.Acquire(ctx, "a", rwlock.Write), p.Acquire(ctx, "b", rwlock.Read)}
		w.Pass(5 * time.Second)
		require.Equal(w, len(waiters), p.Stats().Unreachable)
		w.Pass(time.Hour)
		require.GreaterOrEqual(w, len(told.All()), 2*len(waiters))
		require.Less(w, told.All()[0].Sub(begun), time.Second)
		require.Less(w, len(told.All()), 100*len(waiters))

		p.Link.Restore()
		for _, a := range waiters {
			w.Release(a.Granted())
		}
		require.Zero(w, p.Stats().Unreachable)
		cancel()
	})
}

// A silent server is told from all others by a type, also to whoever comes while it is not tried again, and to Trace.
func TestNotTriedAgainKeepsTheTypeOfItsCause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		told := make(chan error, 9)
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ context.Context, _ rwlock.TraceEvent, err error) {
			told <- err
		}}))
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		for range 2 {
			_, err := p.TryLock(w.Ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.ErrorAs(w, err, new(*rwlock.NoReplyError))
		}
		waiting := p.Acquire(w.Ctx, "n", rwlock.Write)
		require.ErrorAs(w, <-told, new(*rwlock.NoReplyError))
		p.Link.Restore()
		w.Release(waiting.Granted())
	})
}

// withoutMessages is a locker that tells what it hears of messages.
func withoutMessages(t *testing.T, client rueidis.Client) (locker *rwlock.Locker, told chan error) {
	told = make(chan error, 10)
	trace := rwlock.Trace{NoMessages: func(_ string, err error) { told <- err }}
	return lockerOf(t, client, rwlock.WithTrace(&trace)), told
}

// Where messages cannot be had, that is told once with its cause, and those who wait are served all the same.
func TestWithoutMessagesWaitersAsk(t *testing.T) {
	t.Parallel() // its waiters ask once a second
	for name, test := range map[string]struct {
		server []string
		acl    []string
		cause  string
	}{
		"no right to the channel":   {acl: []string{"~fencelock:*", "+@all", "resetchannels"}, cause: "channel"},
		"no right to subscribe":     {acl: []string{"~*", "&*", "+@all", "-subscribe"}, cause: "NOPERM"},
		"no right to publish":       {acl: []string{"~*", "&*", "+@all", "-publish"}, cause: "can't run this command"},
		"SUBSCRIBE is not there":    {server: []string{"--rename-command", "SUBSCRIBE", ""}, cause: "unknown command"},
		"PUBLISH is not there":      {server: []string{"--rename-command", "PUBLISH", ""}, cause: "Unknown Redis command"},
		"it has another name there": {server: []string{"--rename-command", "SUBSCRIBE", "LISTEN"}, cause: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testredis.Start(t, test.server...)
			option := rueidis.ClientOption{}
			if test.acl != nil {
				commandOn(t, srv, append([]string{"ACL", "SETUSER", "app", "on", ">secret"}, test.acl...)...)
				option.Username, option.Password = "app", "secret"
			}
			locker, told := withoutMessages(t, dial(t, srv.Addr(), option))
			for range 3 {
				held := expect.NoError(locker.Lock(t.Context(), "orders")).In(t)
				waiting := inTurn(t.Context(), locker.Lock, "orders")
				require.Eventually(t, func() bool { return locker.Stats().NoMessages == 1 }, testkit.Patience, time.Millisecond)
				require.NoError(t, held.Release(t.Context()))
				require.NoError(t, <-waiting)
			}
			require.ErrorContains(t, <-told, test.cause)
			require.Empty(t, told, "it is told once")
		})
	}
}

// deaf makes a server refuse subscriptions while the switch is on.
func deaf(mini *testredis.Mini, refuses *atomic.Bool) {
	mini.Miniredis().Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "SUBSCRIBE" || !refuses.Load() {
			return false
		}
		c.WriteError("NOPERM no channel for you")
		return true
	})
}

func TestWithoutMessagesTheIntervalGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		var refuses atomic.Bool
		refuses.Store(true)
		deaf(mini, &refuses)
		locker, told := withoutMessages(t, mini.Client(t))
		handOff := func(hold time.Duration) time.Duration {
			held := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
			var next *rwlock.Lease
			granted := make(chan error, 1)
			go func() {
				var err error
				next, err = locker.Lock(context.Background(), "n")
				granted <- err
			}()
			time.Sleep(hold)
			require.NoError(t, held.Release(t.Context()))
			begun := time.Now()
			require.NoError(t, <-granted)
			took := time.Since(begun)
			require.NoError(t, next.Release(t.Context()))
			return took
		}
		require.LessOrEqual(t, handOff(5*time.Millisecond), 20*time.Millisecond)
		require.LessOrEqual(t, handOff(100*time.Millisecond), 200*time.Millisecond)
		mini.ResetCalls()
		require.LessOrEqual(t, handOff(8*time.Second), time.Second+20*time.Millisecond)
		require.LessOrEqual(t, mini.Calls("EVALSHA"), 2+1+8+9+2,
			"a lock that stays held is not asked for a hundred times a second")
		require.Len(t, told, 1)

		refuses.Store(false)
		time.Sleep(2 * time.Minute)
		require.Zero(t, handOff(5*time.Millisecond), "messages have come back")
		require.Error(t, <-told)
	})
}

// A server that has died is not told of as one whose messages do not arrive; nor when it is back.
func TestADeadServerIsNotOneWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		locker, told := withoutMessages(t, mini.Client(t))
		mu := locker.RWMutex("n") // it listens
		require.NoError(t, mu.Lock(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, mu.Unlock(t.Context()), "answered after the connection for messages was made")
		mini.Stop()
		time.Sleep(time.Minute)
		mini.Recover()
		time.Sleep(time.Minute)
		require.Empty(t, told)
	})
}

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
					lease := expect.NoError(locker.Lock(t.Context(), "n", rwlock.WithTTL(ttl))).In(t)
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
		first := expect.NoError(fast.Lock(t.Context(), "n")).In(t)
		time.Sleep(10 * time.Second) // the server knows the scripts by now
		require.NoError(t, first.Release(t.Context()))

		link := mini.NewLink()
		link.Delay(1100 * time.Millisecond) // each way: an answer takes longer than the least limit
		client := dialPatiently(t, link, func(o *rueidis.ClientOption) { o.Dialer.Timeout = 10 * time.Second })
		locker := testkit.New(t, client, rwlock.WithTTL(30*time.Second), rwlock.WithReleaseTimeout(10*time.Second))
		before := dialsOf(client)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease := expect.NoError(locker.Lock(ctx, "n")).In(t)
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
	"no pipelining":     func(o *rueidis.ClientOption) { *o = plain(o); o.DisableAutoPipelining = true },
	"many connections":  func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 },
	"small ring":        func(o *rueidis.ClientOption) { o.RingScaleEachConn = 2 },
	"made for locks":    func(*rueidis.ClientOption) {},
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
	"frozen server":  func(w *world, _ *process) { w.Mini.Freeze() },
	"silent link":    func(_ *world, p *process) { p.Link.Blackhole(testredis.Both) },
	"cut and silent": func(_ *world, p *process) { p.Link.Hold(testredis.Both); p.Link.Cut() },
}

func TestNoCallOutlastsItsContextWithAnyClient(t *testing.T) {
	for kind, change := range plainClients {
		for fault, strike := range deadEnds {
			t.Run(kind+", "+fault, func(t *testing.T) { inFakeTime(t, func(w *world) { outlast(w, change, strike) }) })
		}
	}
}

func outlast(w *world, change func(*rueidis.ClientOption), strike func(*world, *process)) {
	link := w.NewLink()
	option := link.Option()
	change(&option)
	client := expect.NoError(rueidis.NewClient(option)).In(w)
	w.Cleanup(client.Close)
	locker, err := rwlock.New(client, testredis.Silent())
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
			var asked atomic.Int64
			for i := range callers { // half of them for one lock, the others for a new one each time
				all.Go(func() {
					for begun := time.Now(); time.Since(begun) < time.Second; {
						ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Millisecond)
						lease, err := p.Lock(ctx, fmt.Sprint("x", int64(i%2)*asked.Add(1)))
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
			lease := expect.NoError(other.Lock(w.Ctx, "x0")).In(w)
			require.Less(w, time.Since(begun), 100*time.Millisecond)
			w.Release(lease)
			w.Pass(w.TTL)
			require.Less(w, w.ScriptCalls()[0], 10*callers, "of 4,000 attempts")
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
			w.Release(next.GrantedAfter(holder))
			require.Less(w, time.Since(begun), 50*time.Millisecond)
		}
	}))
}

// Two lockers may share a client that has room for one subscription.
func TestCloseWithOneBlockingConnection(t *testing.T) {
	t.Parallel()
	option := testredis.Start(t).Option()
	option.BlockingPoolSize = 1
	client := expect.NoError(rueidis.NewClient(option)).In(t)
	defer client.Close()
	var lockers []*rwlock.Locker
	for _, prefix := range []string{"a", "b"} {
		locker := testkit.New(t, client, rwlock.WithPrefix(prefix), rwlock.WithTTL(time.Minute), testredis.Patience())
		lockers = append(lockers, locker)
		held := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
		over := inTurn(t.Context(), locker.Lock, "n")
		untilWaiting(t, locker)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-over)
	}
	closed := make(chan error, 1)
	go func() { closed <- lockers[1].Close() }()
	require.Eventually(t, func() bool { return len(closed) == 1 }, testkit.Patience, time.Millisecond,
		"Close waits for the other locker's connection")
	require.NoError(t, lockers[0].Close())
}
