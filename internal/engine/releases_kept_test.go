package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/tokens"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// So many releases wait for a server, and no more. The others have failed, and Close does not wait for them.
func TestReleasesKeptForAServer(t *testing.T) {
	e := &Engine{underWay: underWay{none: make(chan struct{}, 1)}}
	q := &releaseQueue{p: &releaseQueues{e: e}}
	const more = 3
	left := 0
	for range releasesKept + more {
		e.underWay.add(+1)
		q.mu.Lock()
		q.keepLocked(&release{onAnswer: func() { left++ }})
		q.unlock()
	}
	require.Len(t, q.waiting, releasesKept)
	require.EqualValues(t, releasesKept, e.underWay.n.Load())
	require.EqualValues(t, more, e.counters.unconfirmed.Load())
	require.Equal(t, more, left, "no attempt waits for them")
}

// One call carries releases of a lock, but for those of which it has more to say.
func TestReleasesThatGoAlone(t *testing.T) {
	now := clock.System().Now()
	until := now.Add(time.Hour)
	for name, alone := range map[string]*release{
		"a tombstone":  {tombstone: wire.Tombstone{TTL: "1"}, until: until},
		"a minimum":    {minimum: minimum{least: 1}, until: until},
		"an heir":      {heir: new(driver), until: until},
		"another lock": {key: "m", until: until},
	} {
		q := &releaseQueue{waiting: []*release{{until: until}, {until: until}, alone}}
		require.Len(t, q.takeLocked(now), 2, name)
		require.Equal(t, []*release{alone}, q.takeLocked(now), name)
	}
}

// Calls that fail one after the other do not put off the probe that the first of them has set.
func TestAProbeIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		e := &Engine{clock: c, timers: timerqueue.New(c, func(clock.Instant) {})}
		e.tokens = tokens.New(c, 1, nil)
		stop := make(chan struct{})
		defer close(stop)
		go e.timers.Run(stop)
		q := &releaseQueue{p: &releaseQueues{e: e}, n: new(transport.Node)}
		q.mu.Lock()
		for range 20 {
			q.backOffLocked()
		}
		q.unlock()
		time.Sleep(transport.BackoffMin)
		synctest.Wait()
		require.Zero(t, e.timers.Len())
	})
}
