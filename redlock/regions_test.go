package redlock_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var regionRounds = flag.Int("redlock.regions", 2, "pairs and hand-offs for each line of TestAcrossRegions")

// region is a quorum as two clients see it: the round trips to each master, in milliseconds.
type region struct {
	name        string
	here, there []int
}

var regions = []region{
	{"one region, 1 ms", []int{1, 1, 1}, []int{1, 1, 1}},
	{"30 ms to each", []int{30, 30, 30}, []int{30, 30, 30}},
	{"80 ms to each", []int{80, 80, 80}, []int{80, 80, 80}},
	{"150 ms to each", []int{150, 150, 150}, []int{150, 150, 150}},
	{"three regions: 1, 30, 80 ms", []int{1, 30, 80}, []int{80, 30, 1}},
	{"five regions: 1, 30, 80, 80, 150 ms", []int{1, 30, 80, 80, 150}, []int{150, 80, 80, 30, 1}},
}

// A client over long links locks and releases a free lock in one round trip each to the master that completes its
// quorum. Time is fake: what is counted is the protocol's, without a machine. docs/operate.md has the table.
func TestAcrossRegions(t *testing.T) {
	for _, r := range regions {
		t.Run(r.name, func(t *testing.T) {
			testkit.InFakeTime(t, len(r.here), func(w *world) {
				here, there := regional(w, r.here), regional(w, r.there)
				here.WarmUp()
				there.WarmUp()
				w.Pass(w.TTL)
				completes := slices.Sorted(slices.Values(r.here))[len(r.here)/2]
				bound := time.Duration(completes)*time.Millisecond*(100+slower)/100 + 5*time.Millisecond
				var locks, releases, handoffs []time.Duration
				for range *regionRounds {
					asked := time.Now()
					lease, err := here.Lock(w.Ctx, "free")
					require.NoError(w, err)
					locks = append(locks, time.Since(asked))
					released := time.Now()
					require.NoError(w, lease.Release(w.Ctx))
					releases = append(releases, time.Since(released))
					w.Pass(time.Second) // the answers of the masters that are further away

					held := there.Take("wanted", rwlock.Write)
					waits := here.Queue("wanted", rwlock.Write)
					w.Pass(time.Second)
					given := time.Now()
					require.NoError(w, held.Release(w.Ctx))
					next := waits.Granted()
					handoffs = append(handoffs, waits.At.Sub(given))
					w.Release(next)
					w.Pass(time.Second)
				}
				for _, took := range [][]time.Duration{locks, releases, handoffs} {
					slices.Sort(took)
				}
				require.LessOrEqual(w, locks[len(locks)-1], bound)
				require.LessOrEqual(w, releases[len(releases)-1], bound)
				t.Logf("| %s | %s | %s | %s |", r.name, spread(locks), spread(releases), spread(handoffs))
			})
		})
	}
}

// A master whose answer takes longer than the node timeout counts as silent in a single attempt. By default that is a
// twentieth of the TTL, so a short TTL over long links needs WithNodeTimeout. An acquisition that waits counts late
// answers too.
func TestNodeTimeoutAcrossRegions(t *testing.T) {
	const rtt, ttl = 150 * time.Millisecond, 2 * time.Second
	inFakeTime(t, 3, func(w *world) {
		w.TTL = ttl
		w.Net = testkit.Net{Way: rtt / 2, Tuned: true}
		hasty, patient := w.Process(), w.Process(redlock.WithNodeTimeout(3*rtt))
		for _, p := range []*process{hasty, patient} {
			p.Section("warm up")
			w.Pass(ttl)
		}
		_, err := hasty.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		w.Pass(ttl)
		lease, err := patient.TryLock(w.Ctx, "n")
		require.NoError(w, err)
		w.Release(lease)
	})
}

// slower is how much longer a message may take, in percent.
const slower = 10

// regional is a process with links of these round trips, in milliseconds.
func regional(w *world, rtts []int) *process {
	p := w.Connect(tuned)
	for i, rtt := range rtts {
		way := time.Duration(rtt) * time.Millisecond / 2
		p.Links[i].DelayFunc(testredis.Both, func() time.Duration { return way + rand.N(way*slower/100) })
	}
	return p.Start()
}

// spread is the median and the 99th percentile of sorted times.
func spread(sorted []time.Duration) string {
	at := func(percent int) time.Duration {
		return sorted[(len(sorted)-1)*percent/100].Round(100 * time.Microsecond)
	}
	return at(50).String() + ", " + at(99).String()
}
