package redlock_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lease outlives every outage after which the links are back 200 ms before its deadline.

var outageSeeds = flag.Int("redlock.outages", 50, "in how many seeds links fail, for each number of masters")

// inTime is how long before a lease's deadline the last of its links comes back, at the least.
const inTime = 200 * time.Millisecond

// outages are ways in which the link to a master, or the master, fails and comes back.
var outages = []struct {
	name        string
	strike, end func(link *testredis.Link, master *testredis.Mini)
}{
	{"refused", func(l *testredis.Link, _ *testredis.Mini) {
		l.Refuse()
		l.Cut()
	}, func(l *testredis.Link, _ *testredis.Mini) { l.Restore() }},
	{
		"held",
		func(l *testredis.Link, _ *testredis.Mini) { l.Hold(testredis.Both) },
		func(l *testredis.Link, _ *testredis.Mini) { l.Restore() },
	},
	{
		"answers held",
		func(l *testredis.Link, _ *testredis.Mini) { l.Hold(testredis.ToClient) },
		func(l *testredis.Link, _ *testredis.Mini) { l.Restore() },
	},
	{"held, new connections too", func(l *testredis.Link, _ *testredis.Mini) {
		l.Hold(testredis.Both)
		l.Cut()
	}, func(l *testredis.Link, _ *testredis.Mini) { l.Restore() }},
	{
		"lost, and reset in the end",
		func(l *testredis.Link, _ *testredis.Mini) { l.Blackhole(testredis.Both) },
		func(l *testredis.Link, _ *testredis.Mini) {
			l.Restore()
			l.Cut()
		},
	},
	{
		"stopped",
		func(_ *testredis.Link, m *testredis.Mini) { m.Stop() },
		func(_ *testredis.Link, m *testredis.Mini) { m.Recover() },
	},
	{
		"frozen",
		func(_ *testredis.Link, m *testredis.Mini) { m.Freeze() },
		func(_ *testredis.Link, m *testredis.Mini) { m.Thaw() },
	},
}

func TestNoLeaseIsLostWhoseLinksWereBackInTime(t *testing.T) {
	for _, masters := range []int{1, 3} {
		t.Run(fmt.Sprint(masters, " masters"), func(t *testing.T) {
			t.Parallel()
			for i := range few(*outageSeeds) {
				seed := *fromSeed + int64(i)
				synctest.Test(t, func(t *testing.T) { newOutage(t, masters, seed).run() })
			}
		})
	}
}

// outage is one process with a lease whose links fail, with all that a seed draws.
type outage struct {
	*set
	*peer
	rng     *rand.Rand
	ttl     time.Duration
	history string // what the seed drew
}

func newOutage(t *testing.T, masters int, seed int64) *outage {
	rng := dice(seed, diceFaults, masters)
	o := &outage{set: newSet(t, masters), rng: rng}
	o.ttl = 500*time.Millisecond + upTo(rng, 10*time.Second)
	way := upTo(rng, 5*time.Millisecond)
	if rng.IntN(2) == 0 {
		o.peer = o.dial(way, nil)
	} else {
		o.peer = o.set.link(func() time.Duration { return way })
	}
	o.history = fmt.Sprintf("seed %d: TTL %v, %v each way", seed, o.ttl, way)
	o.begin(o.peer)
	return o
}

// begin gives a process its locker, over however many masters there are.
func (o *outage) begin(p *peer) {
	if len(o.minis) > 1 {
		p.start(o.t, rwlock.WithTTL(o.ttl))
		return
	}
	locker, err := rwlock.New(p.clients[0], rwlock.WithTTL(o.ttl))
	require.NoError(o.t, err)
	o.t.Cleanup(func() { require.NoError(o.t, locker.Close()) })
	p.Locker = locker
}

func (o *outage) run() {
	lease := o.acquire()
	for range 4 {
		pause(o.t.Context(), upTo(o.rng, o.ttl))
		require.NoError(o.t, lease.Err(), "%s", o.history)
		o.fail(lease)
		pause(o.t.Context(), time.Until(lease.Deadline())+time.Millisecond)
		require.NoError(o.t, lease.Err(), "%s", o.history)
	}
	require.NoError(o.t, lease.Release(o.t.Context()), "%s", o.history)
}

// acquire takes the lock, at once or from the hands of another process.
func (o *outage) acquire() *rwlock.Lease {
	take := o.Lock
	if o.rng.IntN(3) == 0 {
		take = o.RLock
	}
	if o.rng.IntN(2) == 0 {
		other := o.set.link(nil)
		o.begin(other)
		held, err := other.Lock(o.t.Context(), "x")
		require.NoError(o.t, err)
		time.AfterFunc(upTo(o.rng, o.ttl), func() {
			if err := held.Release(o.t.Context()); err != nil {
				o.t.Errorf("%s: release: %v", o.history, err)
			}
		})
		o.history += ", handed over"
	}
	lease, err := take(o.t.Context(), "x")
	require.NoError(o.t, err, "%s", o.history)
	return lease
}

// fail breaks so many links that a quorum is lost, and ends each before the last moment.
func (o *outage) fail(lease *rwlock.Lease) {
	left := time.Until(lease.Deadline()) - inTime
	if left <= 0 {
		return
	}
	struck := o.rng.Perm(len(o.minis))[:len(o.minis)/2+1+o.rng.IntN(len(o.minis)/2+1)]
	slices.Sort(struck)
	var ends sync.WaitGroup
	for _, master := range struck {
		kind, lasts := outages[o.rng.IntN(len(outages))], left
		if o.rng.IntN(3) == 0 {
			lasts = upTo(o.rng, left)
		}
		o.history += fmt.Sprintf("; master %d %s for %v of %v", master, kind.name, lasts, left+inTime)
		kind.strike(o.links[master], o.minis[master])
		ends.Go(func() {
			pause(o.t.Context(), lasts)
			kind.end(o.links[master], o.minis[master])
		})
	}
	ends.Wait()
}
