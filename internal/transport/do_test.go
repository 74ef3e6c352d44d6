package transport_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
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
		client := expect.NoError(rueidis.NewClient(plain(link))).In(t)
		t.Cleanup(client.Close)
		return client
	},
	"tuned": func(t *testing.T, link *testredis.Link) rueidis.Client { return link.Client(t) },
	"from rwlock.Dial": func(t *testing.T, link *testredis.Link) rueidis.Client {
		client := expect.NoError(rwlock.Dial("mini:6379", plain(link))).In(t)
		t.Cleanup(client.Close)
		return client
	},
}

func TestACallerLeavesWhenItsContextEnds(t *testing.T) {
	for name, client := range clients {
		for _, warm := range []int{0, 1, 200} {
			t.Run(name, func(t *testing.T) {
				inBedOf(t, client, func(t *testing.T, b *bed) {
					for range warm {
						b.mustDo()
					}
					b.mini.Freeze()
					defer b.mini.Thaw()
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
	inBed(t, func(t *testing.T, b *bed) {
		b.mini.Freeze()
		keys, args := keysOf("mine"), []string{"-"}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		b.Do(ctx, 0, refresh, keys, wire.Vote{}, args)
		arrived := b.evaluations()
		copy(keys, keysOf("another's"))
		b.mini.Thaw()
		synctest.Wait()
		seen := arrived()
		require.Len(t, seen, 2, "by digest, and then whole")
		require.Equal(t, [][]string{keysOf("mine"), keysOf("mine")}, [][]string{seen[0].keys, seen[1].keys})
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
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		require.Equal(t, 1, b.mini.Calls("EVAL"))
		b.mustDo()
		require.Equal(t, 1, b.mini.Calls("EVAL"))
		b.mini.FlushScripts()
		b.mustDo()
		require.Equal(t, 2, b.mini.Calls("EVAL"))
		require.Equal(t, 3, b.mini.Calls("EVALSHA"))
	})
}

func TestTrustIsCountedFromTheRequestThatRan(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.link.Delay(10 * time.Millisecond)
		begun := b.now().Mono
		_, sent := b.Do(context.Background(), 0, refresh, keysOf("any"), wire.Vote{}, nil)
		require.Equal(t, 20*time.Millisecond, sent.Mono-begun, "that with the source")
		begun = b.now().Mono
		_, sent = b.Do(context.Background(), 0, refresh, keysOf("any"), wire.Vote{}, nil)
		require.Equal(t, begun, sent.Mono)
	})
}

func TestTheTimeLimitOfADialIsNotTheCallers(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.link.Blackhole(testredis.Both)
		b.link.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := b.do(ctx)
		require.Error(t, err)
		require.False(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled), "%v", err)
		require.ErrorContains(t, err, "not connected: dial timed out after 1s")
		b.link.Restore()
	})
}

// brokenClient is a client whose every call ends with one error.
type brokenClient struct {
	rueidis.Client
	err error
}

func brokenBy(err error) func(*testing.T, *testredis.Link) rueidis.Client {
	return func(t *testing.T, link *testredis.Link) rueidis.Client { return &brokenClient{link.Client(t), err} }
}

func (c *brokenClient) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	return rueidis.NewErrorResult(c.err)
}

type key struct{}

func TestADetachedContextHasItsOwnTimeAndTheCallersValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMaster(&transport.Config{}, 0, &modeClient{})
		caller, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "a trace"), time.Hour)
		cancel()
		d := m.Timed(caller, time.Second)
		require.Equal(t, "a trace", d.Value(key{}))
		_, dated := d.Deadline()
		require.False(t, dated, "a deadline would close the connection")
		require.NoError(t, d.Err())
		begun := time.Now()
		<-d.Done()
		require.Equal(t, time.Second, time.Since(begun))
		require.ErrorIs(t, d.Err(), context.DeadlineExceeded)
		d.Stop()
	})
}

// What a callee keeps of a context, such as the timer of a dial that ends a child context, may look at it at any time
// after the call, and finds what it found before. The alarm of the context serves others by then.
func TestADetachedContextOutlivesItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMaster(&transport.Config{}, 0, &modeClient{})
		for range 10 {
			caller := context.WithValue(context.Background(), key{}, "a trace")
			d := m.Timed(caller, time.Second)
			child, cancel := context.WithTimeout(d, time.Minute)
			defer cancel()
			d.Stop()
			d.Stop() // does not stop another's
			next := m.Timed(context.Background(), 3*time.Second)
			begun := time.Now()
			<-next.Done()
			require.Equal(t, 3*time.Second, time.Since(begun))
			next.Stop()
			require.NoError(t, child.Err(), "another call's time does not end it")
			require.Equal(t, "a trace", child.Value(key{}))
			require.Nil(t, next.Value(key{}))
			<-child.Done() // its timer takes it out of its parent
			synctest.Wait()
			require.NoError(t, d.Err())
		}
	})
}

func TestADetachedContextCostsTwoAllocationsAtMost(t *testing.T) {
	m := transport.NewMaster(&transport.Config{}, 0, &modeClient{})
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		m.Timed(context.Background(), time.Minute).Stop()
	}), 2.0)
}

// Each locker has scripts of its own, but not their text.
func TestScriptsShareTheirText(t *testing.T) {
	const sets = 100
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	text := int64(0)
	for _, source := range scripts.All() {
		text += int64(len(source))
	}
	var all []*transport.Script
	before := heap()
	for range sets {
		for name := range scripts.All() {
			all = append(all, transport.NewScript(name, "the same salt in all of them"))
		}
	}
	require.Less(t, heap()-before, sets*text/4)
	runtime.KeepAlive(all)
}

// lateLife is a context whose children end later than itself, as they may by a moment.
type lateLife struct {
	context.Context
	mu       sync.Mutex
	children []func()
}

func (l *lateLife) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.children = append(l.children, f)
	return func() bool { return false }
}

func (l *lateLife) Value(key any) any { return nil } // or the context package finds the parent's own children

func (l *lateLife) endChildren() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.children {
		end()
	}
	l.children = nil
}

// stuckClient says of each batch that it is on its way, and answers none before it is freed.
type stuckClient struct {
	rueidis.Client
	inFlight chan struct{}
	freed    chan struct{}
}

func (c *stuckClient) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	c.inFlight <- struct{}{}
	<-c.freed
	return rueidis.NewErrorResult(context.Canceled)
}

func (c *stuckClient) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	return slices.Repeat([]rueidis.RedisResult{c.Do(ctx, commands[0])}, len(commands))
}

// What is left when the engine gives up is not posted again: no other node has its slots. Its end is seen before that
// of the contexts that are made from it.
func TestNothingIsPostedAgainWhenTheEngineEnds(t *testing.T) {
	// After a failure what is urgent waits for 20 ms, and then one batch goes out; so what has to wait are many batches.
	const atOnce, waiting = 4, 10 * 256
	life := new(lateLife)
	client := &stuckClient{
		Client: testredis.NewMini(t).Client(t), inFlight: make(chan struct{}, waiting), freed: make(chan struct{}),
	}
	b := newBed(t, client, func(c *transport.Config) {
		life.Context = c.Life
		c.Life = life
	})
	t.Cleanup(life.endChildren)
	var answered atomic.Int64
	post := func() {
		b.Post(transport.Call{
			Script: refresh, Keys: keysOf("any"), Urgent: true,
			To: transport.ReceiverFunc(func(rueidis.RedisResult, clock.Instant) { answered.Add(1) }),
		})
	}
	for range atOnce {
		post()
		<-client.inFlight
	}
	for range waiting {
		post()
	}
	b.end()
	close(client.freed)
	select {
	case <-b.over():
	case <-time.After(patience):
		require.Fail(t, "what has to wait is posted again and again")
	}
	require.Less(t, answered.Load(), int64(atOnce+waiting), "there was something left")
}

// The end of the engine is not reported as the end of a context of the caller's, which has not ended.
func TestACallerWhoseEngineEnds(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mini.Freeze()
		defer b.mini.Thaw()
		ended := make(chan error)
		for _, limit := range []time.Duration{0, time.Hour} {
			go func() {
				r, _ := b.Do(context.Background(), limit, refresh, keysOf("any"), wire.Vote{}, []string{"-"})
				ended <- r.NonRedisError()
			}()
		}
		time.Sleep(time.Millisecond)
		b.end()
		for range 2 {
			require.Equal(t, &transport.NoReply{After: time.Millisecond}, <-ended)
		}
	})
}

func TestMain(m *testing.M) {
	scratch.Use("fencelock-transport")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}

// spent is the context of a request that a web framework uses again: once the request is over, it panics.
type spent struct {
	context.Context
	over *atomic.Bool
}

func (c spent) Value(key any) any {
	if c.over.Load() {
		panic("the request is over")
	}
	return c.Context.Value(key)
}

// asking is a client with a hook that asks each context for a value, as a tracer does.
type asking struct{ rueidis.Client }

func (c asking) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	_ = ctx.Value(spent{})
	return c.Client.Do(ctx, cmd)
}

// What goes on after its caller has left, on a goroutine of its own, may ask the caller's context for values.
func TestALookOutlivesItsCallersContext(t *testing.T) {
	client := func(t *testing.T, link *testredis.Link) rueidis.Client { return asking{link.Client(t)} }
	inBedOf(t, client, func(t *testing.T, b *bed) {
		b.mini.Freeze()
		ctx, cancel := context.WithCancel(t.Context())
		over := new(atomic.Bool)
		left := make(chan error)
		go func() {
			script := transport.NewScript(scripts.Inspect, "") // which the server does not know, so that it is sent again
			r, _ := b.Do(spent{ctx, over}, 0, script, keysOf("n"), wire.Vote{}, nil)
			left <- r.NonRedisError()
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		over.Store(true)
		sent := b.mini.Calls("EVAL")
		b.mini.Thaw()
		synctest.Wait()
		require.Greater(t, b.mini.Calls("EVAL"), sent)
	})
}
