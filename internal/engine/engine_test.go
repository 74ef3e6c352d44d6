package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// endings are the ways in which a lease ends whose release goes out in the background. told is called at that end.
var endings = map[string]func(t *testing.T, e, other *engine.Engine, l *engine.Lease, told func(error)){
	"given back": func(t *testing.T, e, _ *engine.Engine, l *engine.Lease, told func(error)) {
		require.NoError(t, e.Acquire(t.Context(), l, writing(0)))
		l.OnEnd(told)
		l.ReleaseSoon()
	},
	"lost": func(t *testing.T, e, _ *engine.Engine, l *engine.Lease, told func(error)) {
		require.NoError(t, e.Acquire(t.Context(), l, writing(time.Second)))
		l.OnEnd(told)
		<-l.Done()
	},
	"given up": func(t *testing.T, e, other *engine.Engine, l *engine.Lease, told func(error)) {
		held := acquired(t, other, writing(0))
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() { waited <- e.Acquire(ctx, l, writing(0)) }()
		synctest.Wait()
		l.OnEnd(told)
		cancel()
		require.Error(t, <-waited)
		require.NoError(t, held.Release(t.Context()))
	},
}

// Close between the end of a lease and its release in the background waits for that release.
func TestCloseWaitsForAReleaseThatHasYetToBeSent(t *testing.T) {
	for name, end := range endings {
		for _, masters := range []int{1, 3} {
			inBubble(t, fmt.Sprint(name, ", ", masters, " masters"), func(t *testing.T) {
				e, other := twoEngines(t, masters, settings.Default().Lock.TTL)
				closed := make(chan struct{})
				var l engine.Lease
				end(t, e, other, &l, func(error) {
					go func() {
						defer close(closed)
						e.Close()
					}()
					time.Sleep(time.Millisecond) // until Close waits for something
				})
				<-closed
				if masters > 1 { // no caller waits for the last
					synctest.Wait()
				}
				views, _ := other.Admin().Inspect(t.Context(), "n")
				require.Len(t, views, masters)
				for _, v := range views {
					require.NoError(t, v.Err)
					require.Empty(t, v.Holders)
					require.Empty(t, v.Waiters)
				}
				require.Zero(t, e.Registered().Releases)
			})
		}
	}
}

// Close waits for a release that is on its way, whoever waits for it.
func TestCloseWaitsForAReleaseThatIsOnItsWay(t *testing.T) {
	const slow = time.Second // less than the release timeout
	for name, release := range map[string]func(t *testing.T, l *engine.Lease){
		"Release": func(t *testing.T, l *engine.Lease) {
			if err := l.Release(context.Background()); err != nil {
				t.Error(err)
			}
		},
		"ReleaseWithin": func(_ *testing.T, l *engine.Lease) { l.ReleaseWithin(context.Background()) },
		"ReleaseSoon":   func(_ *testing.T, l *engine.Lease) { l.ReleaseSoon() },
	} {
		for _, masters := range []int{1, 3} {
			inBubble(t, fmt.Sprint(name, ", ", masters, " masters"), func(t *testing.T) {
				e, thaw := releasesFreeze(t, masters, settings.Default().Lock.TTL)
				l := acquired(t, e, writing(0))
				began := time.Now()
				go release(t, l)
				synctest.Wait()
				time.AfterFunc(slow, thaw)
				e.Close()
				require.Equal(t, slow, time.Since(began))
			})
		}
	}
}

// The time that the ends of the leases take is a part of the release timeout, after which Close returns.
func TestCloseReturnsAfterTheReleaseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 2 * time.Second // the release timeout of a longer TTL
		e, thaw := releasesFreeze(t, 1, time.Minute)
		l := acquired(t, e, writing(0))
		l.OnEnd(func(error) { time.Sleep(timeout / 2) })
		defer thaw()
		began := time.Now()
		e.Close()
		require.Equal(t, timeout, time.Since(began))
	})
}

// Close ends the leases before the waits: other processes wait for the leases, and the waiters may be many.
func TestCloseEndsLeasesBeforeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, other := twoEngines(t, 1, settings.Default().Lock.TTL)
		var held, elsewhere engine.Lease
		require.NoError(t, other.Acquire(t.Context(), &elsewhere, writing(0)))
		r := writing(0)
		r.Name = "another"
		require.NoError(t, e.Acquire(t.Context(), &held, r))
		var waits sync.WaitGroup
		var ended atomic.Int64
		for range 100 {
			waits.Go(func() {
				var l engine.Lease
				if e.Acquire(t.Context(), &l, writing(0)) != nil {
					ended.Add(1)
				}
			})
		}
		synctest.Wait()
		held.OnEnd(func(error) {
			synctest.Wait()
			assert.Zero(t, ended.Load())
		})
		e.Close()
		waits.Wait()
		require.EqualValues(t, 100, ended.Load())
	})
}

// writing is a request for the write lock "n", with a limit or 0 for none.
func writing(maxHold time.Duration) engine.Request {
	lock := settings.Default().Lock
	lock.MaxHold = maxHold
	return engine.Request{Name: "n", Mode: fencing.Write, Entry: engine.Wait, Terms: lock.Prepare()}
}

// twoEngines returns two engines over the same masters.
func twoEngines(t *testing.T, masters int, ttl time.Duration) (one, two *engine.Engine) {
	var clients [2][]rueidis.Client
	for i := range masters {
		mini := testredis.NewMini(t)
		mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
		for j := range clients {
			clients[j] = append(clients[j], mini.Client(t))
		}
	}
	return newEngine(t, ttl, clients[0]...), newEngine(t, ttl, clients[1]...)
}

// A hold is described by its own terms, whatever the hold before it had.
func TestDetailsAreThoseOfTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := twoEngines(t, 1, settings.Default().Lock.TTL)
		for _, meta := range []string{"a", "b"} {
			request := writing(0)
			request.Terms.Meta = meta
			l := acquired(t, e, request)
			views, _ := e.Admin().Inspect(t.Context(), "n")
			require.Equal(t, meta, views[0].Holders[0].Meta)
			require.NoError(t, l.Release(t.Context()))
		}
	})
}

// F13, from the inside: whatever becomes of an acquisition, the engine's books are empty after it.
func TestNothingStaysInTheBooks(t *testing.T) {
	const ttl = 10 * time.Second
	write := engine.Request{Mode: fencing.Write}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, e, other *engine.Engine, link *testredis.Link, r engine.Request)
	}{
		{"released", func(t *testing.T, e, _ *engine.Engine, _ *testredis.Link, r engine.Request) {
			l := acquired(t, e, r)
			require.NoError(t, l.Release(t.Context()))
		}},
		{"refused", func(t *testing.T, e, other *engine.Engine, _ *testredis.Link, r engine.Request) {
			held, l := acquired(t, other, r), new(engine.Lease)
			r.Entry = engine.Try
			require.Error(t, e.Acquire(t.Context(), l, r))
			require.NoError(t, held.Release(t.Context()))
		}},
		{"handed off", func(t *testing.T, e, other *engine.Engine, _ *testredis.Link, r engine.Request) {
			held, l := acquired(t, other, r), new(engine.Lease)
			time.AfterFunc(3*ttl, func() { _ = held.Release(context.Background()) })
			require.NoError(t, e.Acquire(t.Context(), l, r))
			require.NoError(t, l.Release(t.Context()))
		}},
		{"cancelled while it waited", func(t *testing.T, e, other *engine.Engine, _ *testredis.Link, r engine.Request) {
			held, l := acquired(t, other, r), new(engine.Lease)
			ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
			defer cancel()
			require.Error(t, e.Acquire(ctx, l, r))
			require.NoError(t, held.Release(t.Context()))
		}},
		{"lost", func(t *testing.T, e, _ *engine.Engine, link *testredis.Link, r engine.Request) {
			l := acquired(t, e, r)
			link.Hold(testredis.Both)
			<-l.Done()
			link.Restore()
		}},
		{"never answered", func(t *testing.T, e, _ *engine.Engine, link *testredis.Link, r engine.Request) {
			var l engine.Lease
			link.Hold(testredis.Both)
			ctx, cancel := context.WithTimeout(t.Context(), ttl)
			defer cancel()
			require.Error(t, e.Acquire(ctx, &l, r))
			link.Restore()
		}},
		{"released in vain", func(t *testing.T, e, _ *engine.Engine, link *testredis.Link, r engine.Request) {
			l := acquired(t, e, r)
			link.Hold(testredis.Both)
			require.Error(t, l.Release(t.Context()))
			time.Sleep(2 * ttl) // then the hold has expired by itself
			link.Restore()
		}},
		{"refused by the server", func(t *testing.T, e, _ *engine.Engine, link *testredis.Link, r engine.Request) {
			client := link.Client(t)
			foreign := client.B().Set().Key("fencelock:{" + r.Name + "}").Value("mine").Build()
			require.NoError(t, client.Do(t.Context(), foreign).Error())
			var l engine.Lease
			require.Error(t, e.Acquire(t.Context(), &l, r))
		}},
		{"cancelled before it began", func(t *testing.T, e, _ *engine.Engine, _ *testredis.Link, r engine.Request) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var l engine.Lease
			require.Error(t, e.Acquire(ctx, &l, r))
		}},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			mini := testredis.NewMini(t)
			link := mini.NewLink()
			e, other := newEngine(t, ttl, link.Client(t)), newEngine(t, ttl, mini.Client(t))
			for i := range 5 {
				r := write
				r.Name, r.Entry = strconv.Itoa(i), engine.Wait
				lock := settings.Default().Lock
				lock.TTL = ttl
				r.Terms = lock.Prepare()
				c.run(t, e, other, link, r)
			}
			time.Sleep(2 * ttl)
			synctest.Wait()
			require.Zero(t, e.Registered())
			require.Zero(t, e.Stats().Held+e.Stats().Waiting)
		})
	}
}

// inBubble runs a subtest in fake time.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// acquired returns a lease that an engine has acquired.
func acquired(t *testing.T, e *engine.Engine, r engine.Request) *engine.Lease {
	t.Helper()
	l := new(engine.Lease)
	require.NoError(t, e.Acquire(t.Context(), l, r))
	return l
}

// newEngine returns an engine over these masters. It is closed when the test ends.
func newEngine(t *testing.T, ttl time.Duration, masters ...rueidis.Client) *engine.Engine {
	s := settings.Default()
	s.Clients, s.Lock.TTL = masters, ttl
	require.Nil(t, s.Check())
	e := engine.New(s.Engine())
	t.Cleanup(e.Close)
	return e
}
