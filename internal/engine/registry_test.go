package engine_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/testredis"
)

// F13, from the inside: whatever becomes of an acquisition, the engine's books are empty after it.
func TestNothingStaysInTheBooks(t *testing.T) {
	const ttl = 10 * time.Second
	write := engine.Request{Mode: fencing.Write}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, e, other *engine.Engine, link *testredis.Link, r engine.Request)
	}{
		{"released", func(t *testing.T, e, _ *engine.Engine, _ *testredis.Link, r engine.Request) {
			var l engine.Lease
			require.NoError(t, e.Acquire(t.Context(), &l, r))
			require.NoError(t, l.Release(t.Context()))
		}},
		{"refused", func(t *testing.T, e, other *engine.Engine, _ *testredis.Link, r engine.Request) {
			var held, l engine.Lease
			require.NoError(t, other.Acquire(t.Context(), &held, r))
			r.Entry = engine.Try
			require.Error(t, e.Acquire(t.Context(), &l, r))
			require.NoError(t, held.Release(t.Context()))
		}},
		{"handed off", func(t *testing.T, e, other *engine.Engine, _ *testredis.Link, r engine.Request) {
			var held, l engine.Lease
			require.NoError(t, other.Acquire(t.Context(), &held, r))
			time.AfterFunc(3*ttl, func() { _ = held.Release(context.Background()) })
			require.NoError(t, e.Acquire(t.Context(), &l, r))
			require.NoError(t, l.Release(t.Context()))
		}},
		{"cancelled while it waited", func(t *testing.T, e, other *engine.Engine, _ *testredis.Link, r engine.Request) {
			var held, l engine.Lease
			require.NoError(t, other.Acquire(t.Context(), &held, r))
			ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
			defer cancel()
			require.Error(t, e.Acquire(ctx, &l, r))
			require.NoError(t, held.Release(t.Context()))
		}},
		{"lost", func(t *testing.T, e, _ *engine.Engine, link *testredis.Link, r engine.Request) {
			var l engine.Lease
			require.NoError(t, e.Acquire(t.Context(), &l, r))
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
			var l engine.Lease
			require.NoError(t, e.Acquire(t.Context(), &l, r))
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
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := testredis.NewMini(t)
				link := mini.NewLink()
				e, other := newEngine(t, ttl, link.Client(t)), newEngine(t, ttl, mini.Client(t))
				for i := range 5 {
					r := write
					r.Name, r.Entry = strconv.Itoa(i), engine.Wait
					lock := settings.Default().Lock
					lock.TTL = ttl
					r.Terms = lock.Terms()
					c.run(t, e, other, link, r)
				}
				time.Sleep(2 * ttl)
				synctest.Wait()
				require.Zero(t, e.Registered())
				require.Zero(t, e.Stats().Held+e.Stats().Waiting)
			})
		})
	}
}

// newEngine returns an engine over these masters. It is closed when the test ends.
func newEngine(t *testing.T, ttl time.Duration, masters ...rueidis.Client) *engine.Engine {
	s := settings.Default()
	s.Masters, s.Lock.TTL = masters, ttl
	require.Nil(t, s.Check())
	e := engine.New(s.Engine())
	t.Cleanup(e.Close)
	return e
}
