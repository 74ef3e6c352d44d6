package engine_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// A call waits for the releases that were registered before it, in whatever order they are answered, and for no others.
func TestACallFollowsTheReleasesBeforeIt(t *testing.T) {
	var leaving engine.Leaving
	var called []string
	follow := func(name string) { leaving.After("n", func() { called = append(called, name) }) }
	follow("none")
	require.Equal(t, []string{"none"}, called)

	first, second, other := leaving.Add("n"), leaving.Add("n"), leaving.Add("m")
	follow("two")
	third := leaving.Add("n")
	follow("three")
	require.True(t, leaving.Any("n"))
	second()
	require.Equal(t, []string{"none"}, called)
	first()
	require.Equal(t, []string{"none", "two"}, called)
	third()
	require.Equal(t, []string{"none", "two", "three"}, called)
	require.False(t, leaving.Any("n"))
	require.True(t, leaving.Any("m"))
	other()
	require.False(t, leaving.Any("m"))
}

// While a server hangs, memory is proportional to the single attempts that were given up.
func TestManyCallsBehindManyReleases(t *testing.T) {
	const n = 2_000
	var leaving engine.Leaving
	var before, after runtime.MemStats
	var left []func()
	called := 0
	runtime.ReadMemStats(&before)
	for range n {
		left = append(left, leaving.Add("n"))
		leaving.After("n", func() { called++ })
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(n*1_000))
	for i, f := range left {
		f()
		require.Equal(t, i+1, called)
	}
}

// One release at a time probes a server that fails.
func TestOneReleaseProbesAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		e := newEngine(t, time.Hour, link.Client(t))
		var leases [5]engine.Lease
		for i := range leases {
			r := writing(0)
			r.Name = strconv.Itoa(i)
			require.NoError(t, e.Acquire(t.Context(), &leases[i], r))
		}
		probes := make(chan time.Time, 1000)
		link.Deny(func(cmd []string) string {
			if testredis.Named("EVALSHA")(cmd) {
				probes <- time.Now()
			}
			return "LOADING Redis is loading the dataset in memory"
		})
		for i := range leases {
			leases[i].ReleaseSoon()
		}
		synctest.Wait()
		for len(probes) > 0 { // they did not know
			<-probes
		}
		time.Sleep(time.Minute)
		require.NotEmpty(t, probes)
		for last := (time.Time{}); len(probes) > 0; {
			at := <-probes
			require.NotEqual(t, last, at)
			last = at
		}
		link.Deny(nil)
		time.Sleep(time.Minute)
		require.Zero(t, e.Registered())
	})
}

// A release that is added to a node's queue while another node takes its place is sent, and waits for no probe.
func TestAReleaseInAReplacedQueueIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Hour
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		e := newEngine(t, ttl, link.Client(t))
		l := acquired(t, e, writing(0))
		link.Refuse()
		link.Cut()
		l.ReleaseSoon()
		time.Sleep(3 * time.Second) // the node fails
		synctest.Wait()
		require.Equal(t, 1, e.Registered().Releases)
		require.True(t, e.AddBesideRepeat("n", "00000000000000000000000000", ttl), "a release waits for a probe")
		require.Equal(t, 2, e.Registered().Releases)
		link.Restore()
		time.Sleep(time.Minute)
		require.Zero(t, e.Registered().Releases)
	})
}

// noDone is the context of a request that a web framework uses again: once the request is over, it panics.
type noDone struct{ context.Context }

func (noDone) Done() <-chan struct{} { panic("the request is over") }

// A lease is given back also if the context that bounds the call panics.
func TestAReleaseOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for masters := 1; masters < 4; masters += 2 {
			var clients []rueidis.Client
			for range masters {
				clients = append(clients, testredis.NewMini(t).NewLink().Client(t))
			}
			e := newEngine(t, 10*time.Second, clients...)
			var first, second engine.Lease
			require.NoError(t, e.Acquire(t.Context(), &first, writing(0)))
			require.Panics(t, func() { first.ReleaseWithin(noDone{t.Context()}) })
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			require.NoError(t, e.Acquire(within, &second, writing(0)))
			cancel()
			require.NoError(t, second.Release(t.Context()))
		}
	})
}
