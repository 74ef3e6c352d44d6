package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// handOver renews a lock that it holds in the first process, while the second waits for it.
func handOver(w *world, first, second *process) {
	held := first.Take("orders", rwlock.Write)
	require.NoError(w, held.Renew(w.Ctx))
	waiting := second.InTurn(w.Ctx, "orders", rwlock.Read)
	w.UntilWaiting("orders", 1)
	w.Release(held)
	waiting.Granted()
}

// The user of SECURITY.md for a master of a quorum may do all that a lock needs, by any client.
func TestACLOfAQuorumSuffices(t *testing.T) {
	line := testkit.ACLLine(t, "..", testkit.ACLEachServer)
	w := testkit.Start(t, 3)
	for _, server := range w.Servers {
		w.On(server, line...)
	}
	w.Net.Change = func(o *rueidis.ClientOption) { o.Username, o.Password = "locks", "secret" }
	own := w.Process()
	w.Net.Tuned = true
	tuned := w.Process()
	for _, pair := range [][2]*process{{tuned, own}, {own, tuned}} {
		handOver(w, pair[0], pair[1])
	}
	for _, server := range w.Servers {
		require.Empty(w, w.On(server, "ACL", "LOG"))
	}
}

// Each master's vote counts only with its own replica: a quorum may do without one of them, and not without two.
func TestVoteCountsWithItsReplicas(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	w := testkit.Start(t, 3)
	var replicas []*testredis.Server
	for _, master := range w.Servers {
		replica := testredis.Start(t)
		replica.ReplicaOf(master)
		replicas = append(replicas, replica)
	}
	opts := []rwlock.Option{rwlock.WithTTL(15 * time.Second), rwlock.WithReplicas(1, 3*time.Second)}
	for name, p := range map[string]*process{"tuned": w.ProcessOver(tuned, opts...), "plain": w.Process(opts...)} {
		t.Run(name, func(t *testing.T) {
			onQuorum(w, p)
			replicas[0].Freeze()
			onQuorum(w, p, replicas[1], replicas[2])

			held := p.Acquire(w.Soon(time.Minute), "n", rwlock.Write).Granted()
			waiting := p.InTurn(w.Soon(time.Minute), "n", rwlock.Write)
			w.UntilWaiting("n", 1)
			require.NoError(t, held.Renew(w.Ctx), "by two masters with their replicas")
			require.NoError(t, held.Release(w.Ctx))
			waiting.Granted() // handed off by two masters with their replicas

			replicas[1].Freeze()
			require.ErrorIs(t, expect.ErrorOf(p.TryLock(w.Soon(time.Minute), "n")), rwlock.ErrReplicas)
			for i, replica := range replicas[:2] {
				replica.Thaw()
				w.Servers[i].UntilConfirmed()
			}
			onQuorum(w, p)
		})
	}
}

// onQuorum takes the lock and gives it back, and fails the test if these replicas do not have it in between.
func onQuorum(w *world, p *process, replicas ...*testredis.Server) {
	w.Helper()
	lease := p.Acquire(w.Soon(time.Minute), "n", rwlock.Write).Granted()
	for _, replica := range replicas {
		require.Contains(w, w.On(replica, "HGET", "fencelock:{n}", "w"), lease.Owner())
	}
	require.NoError(w, lease.Release(w.Ctx))
}

// inOneAttempt has what a caller does once: for a free lock, or with a lease.
var inOneAttempt = map[string]func(w *world, p *process, held *rwlock.Lease) error{
	"TryLock": func(_ *world, p *process, _ *rwlock.Lease) error { return p.TryOnce("free") },
	"TryDo":   func(_ *world, p *process, _ *rwlock.Lease) error { return runs(p, "free") },
	"Renew":   func(w *world, _ *process, held *rwlock.Lease) error { return held.Renew(w.Ctx) },
	"SetTTL":  func(w *world, _ *process, held *rwlock.Lease) error { return held.SetTTL(w.Ctx, 7*time.Second) },
	"Downgrade": func(w *world, _ *process, held *rwlock.Lease) error {
		return errors.Join(held.Downgrade(w.Ctx), held.Err())
	},
	"Release": func(w *world, _ *process, held *rwlock.Lease) error { return held.Release(w.Ctx) },
}

// runs returns why a single attempt did not run its function.
func runs(p *process, name string) error {
	ran, err := p.TryDo(p.W.Ctx, name, func(context.Context) error { return nil })
	if err == nil && !ran {
		err = errors.New("it did not run")
	}
	return err
}

// All connections were replaced, as by a proxy that ends idle ones, and a quorum is up. The first attempt waits until
// the markers have been read over the new ones. The client may dial for it, or for its listener before.
func TestFirstAttemptAfterReconnecting(t *testing.T) {
	confirms := rwlock.WithConfirmedHandOff()
	ways := []time.Duration{time.Millisecond, 40 * time.Millisecond}
	for name, attempt := range inOneAttempt {
		t.Run(name, func(t *testing.T) {
			for _, way := range testredis.Few(ways[1:], ways) {
				for _, idle := range testredis.Few([]time.Duration{0}, []time.Duration{0, time.Minute}) {
					for _, opts := range [][]rwlock.Option{nil, {confirms}} {
						inFakeTime(t, 3, func(w *world) {
							p := w.ProcessOver(testkit.Net{Way: way, Tuned: true}, append(opts, rwlock.WithTTL(2*time.Minute))...)
							var lease *rwlock.Lease
							if name[0] != 'T' {
								lease = p.Take("x", rwlock.Write)
							} else {
								p.Section("x")
							}
							time.Sleep(time.Second)
							for _, l := range p.Links {
								l.Cut()
							}
							w.Settle()
							time.Sleep(idle)
							began := time.Now()
							require.NoError(w, attempt(w, p, lease), "way %v, idle %v, %d options", way, idle, len(opts))
							require.Less(w, time.Since(began), time.Second)
						})
					}
				}
			}
		})
	}
}

// A grant over the lost connection, which the second request finds and does not write, is confirmed before it counts.
func TestRepeatedAttemptIsConfirmed(t *testing.T) {
	for _, confirms := range []bool{false, true} {
		inFakeTime(t, 3, func(w *world) {
			if confirms {
				w.Opts = append(w.Opts, rwlock.WithConfirmedHandOff())
			}
			p := w.ProcessOver(tuned)
			p.WarmUp()
			renewals := make([]int, len(p.Links)) // of each master
			for i, l := range p.Links {
				l.Cut()
				l.OnCommand(func(cmd []string) {
					if w.ScriptOf(cmd) == scripts.Renew {
						renewals[i]++
					}
				})
			}
			w.Settle()
			lease := p.Take("x", rwlock.Write)
			before := 0
			for _, n := range renewals {
				before += min(n, 1)
			}
			w.Release(lease)
			require.Equal(w, confirms, before >= 2, "%d masters have confirmed it", before)
		})
	}
}

// A release that has freed the lock is neither unknown nor sent again, whatever connection its answer came over.
func TestReleaseOverAReplacedConnection(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := warmed(w.ProcessOver(testkit.Net{Way: 10 * time.Millisecond, Tuned: true}))
		lease := p.Take("x", rwlock.Write)
		time.AfterFunc(5*time.Millisecond, func() {
			for _, c := range p.Clients {
				go func() {
					d, back := c.Dedicate()
					defer back()
					_ = d.Do(w.Ctx, d.B().Ping().Build()).Error()
				}()
			}
		})
		w.ResetCalls()
		require.NoError(w, lease.Release(w.Ctx))
		w.Pass(time.Second)
		for _, mini := range w.Minis {
			require.Equal(w, 1, mini.Calls("EVALSHA"), "releases; a listener asks by EVAL where its connection leads")
		}
	})
}

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
					lease := expect.NoError(here.Lock(w.Ctx, "free")).In(w)
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
	{"refused", func(l *testredis.Link, _ *testredis.Mini) { l.Refuse(); l.Cut() }, restoreLink},
	{"held", func(l *testredis.Link, _ *testredis.Mini) { l.Hold(testredis.Both) }, restoreLink},
	{"answers held", func(l *testredis.Link, _ *testredis.Mini) { l.Hold(testredis.ToClient) }, restoreLink},
	{
		"held, new connections too",
		func(l *testredis.Link, _ *testredis.Mini) { l.Hold(testredis.Both); l.Cut() }, restoreLink,
	},
	{
		"lost, and reset in the end",
		func(l *testredis.Link, _ *testredis.Mini) { l.Blackhole(testredis.Both) },
		func(l *testredis.Link, _ *testredis.Mini) { l.Restore(); l.Cut() },
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

func restoreLink(l *testredis.Link, _ *testredis.Mini) { l.Restore() }

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
	return expect.NoError(take(o.Ctx, "x")).In(o, o.history)
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
