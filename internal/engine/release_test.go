package engine_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

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
