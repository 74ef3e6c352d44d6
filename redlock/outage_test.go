package redlock_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lease outlives every outage after which the links are back 200 ms before its deadline.

var outageSeeds = flag.Int("redlock.outages", testredis.Few(5, 50),
	"in how many seeds links fail, for each number of masters")

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
			for i := range *outageSeeds {
				seed := *fromSeed + int64(i)
				inFakeTime(t, masters, func(w *world) { newOutage(w, seed).run() })
			}
		})
	}
}

// outage is one process with a lease whose links fail, with all that a seed draws.
type outage struct {
	*world
	p       *process
	rng     *rand.Rand
	ttl     time.Duration
	history string // what the seed drew
}

func newOutage(w *world, seed int64) *outage {
	rng := dice(seed, diceFaults, len(w.Minis))
	o := &outage{world: w, rng: rng}
	o.ttl = 500*time.Millisecond + upTo(rng, 10*time.Second)
	way := upTo(rng, 5*time.Millisecond)
	w.TTL = o.ttl
	o.p = w.ProcessOver(testkit.Net{Way: way, Tuned: rng.IntN(2) == 0})
	o.history = fmt.Sprintf("seed %d: TTL %v, %v each way", seed, o.ttl, way)
	return o
}

func (o *outage) run() {
	lease := o.acquire()
	for range 4 {
		pause(o.Ctx, upTo(o.rng, o.ttl))
		require.NoError(o, lease.Err(), "%s", o.history)
		o.fail(lease)
		pause(o.Ctx, time.Until(lease.Deadline())+time.Millisecond)
		require.NoError(o, lease.Err(), "%s", o.history)
	}
	require.NoError(o, lease.Release(o.Ctx), "%s", o.history)
}

// acquire takes the lock, at once or from the hands of another process.
func (o *outage) acquire() *rwlock.Lease {
	take := o.p.Lock
	if o.rng.IntN(3) == 0 {
		take = o.p.RLock
	}
	if o.rng.IntN(2) == 0 {
		held := o.ProcessAt(0).Take("x", rwlock.Write)
		time.AfterFunc(upTo(o.rng, o.ttl), func() {
			if err := held.Release(o.Ctx); err != nil {
				o.Errorf("%s: release: %v", o.history, err)
			}
		})
		o.history += ", handed over"
	}
	lease, err := take(o.Ctx, "x")
	require.NoError(o, err, "%s", o.history)
	return lease
}

// fail breaks so many links that a quorum is lost, and ends each before the last moment.
func (o *outage) fail(lease *rwlock.Lease) {
	left := time.Until(lease.Deadline()) - inTime
	if left <= 0 {
		return
	}
	struck := o.rng.Perm(len(o.Minis))[:len(o.Minis)/2+1+o.rng.IntN(len(o.Minis)/2+1)]
	slices.Sort(struck)
	var ends sync.WaitGroup
	for _, master := range struck {
		kind, lasts := outages[o.rng.IntN(len(outages))], left
		if o.rng.IntN(3) == 0 {
			lasts = upTo(o.rng, left)
		}
		o.history += fmt.Sprintf("; master %d %s for %v of %v", master, kind.name, lasts, left+inTime)
		kind.strike(o.p.Links[master], o.Minis[master])
		ends.Go(func() {
			pause(o.Ctx, lasts)
			kind.end(o.p.Links[master], o.Minis[master])
		})
	}
	ends.Wait()
}
