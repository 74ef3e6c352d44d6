package redlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// faults breaks what a simulation consists of, again and again, each for a while.
type faults struct {
	s      *simulation
	rng    *rand.Rand
	struck map[string]int

	// forgetting is until when a master counts as one that has lost data: leases from before may live that long.
	forgetting [simMasters]time.Time
	snapshots  [simMasters]*testredis.Snapshot
	spares     [simMasters]*testredis.Mini // the second server of a pair, which does not answer now
	outdated   [simMasters]bool            // the snapshot is from before a master was replaced
	toDelete   [simMasters]bool            // the marker that the master has, or may have, has to be deleted by hand
	gap        time.Duration               // at most, between two faults
	steps      time.Duration               // the most that a clock is set forward or back
	ahead      [simMasters]time.Duration
	flushes    bool

	ends sync.WaitGroup // of the faults that last
}

// fault is one kind of trouble. It reports whether it struck.
type fault struct {
	name   string
	weight int
	strike func(f *faults, ctx context.Context) bool
}

var allFaults = []fault{
	{"cut", 6, (*faults).cut},
	{"blackhole", 5, (*faults).blackhole},
	{"late", 5, (*faults).late},
	{"deaf", 3, (*faults).deaf},
	{"pause", 4, (*faults).pause},
	{"partition", 4, (*faults).partition},
	{"frozen", 3, (*faults).frozen},
	{"stopped", 2, (*faults).stopped},
	{"wiped", 4, (*faults).wiped},
	{"snapshot", 4, (*faults).snapshot},
	{"rolled back", 4, (*faults).rolledBack},
	{"clock", 4, (*faults).clock},
	{"flushed", 1, (*faults).flushed},
	{movedMasters, 4, (*faults).moved},
	{demotedMaster, 4, (*faults).demoted},
}

// newFaults decides which of two worlds this is. The order of the tokens is not promised where data is lost and a
// clock steps back by more than the time since the last grant. So where clocks step far, all masters are never
// flushed at once; and a step is shorter than what it takes to lose a majority of the counters one after the other.
func newFaults(s *simulation) *faults {
	f := &faults{s: s, rng: dice(s.seed, diceFaults, 0), struck: make(map[string]int)}
	if f.flushes = s.seed%3 == 0 && !s.oneFounds(); !f.flushes {
		f.steps = 400 * time.Millisecond
	}
	f.gap = 100*time.Millisecond + upTo(f.rng, 900*time.Millisecond)
	for _, p := range s.peers {
		for j := range p.Links {
			f.duplicates(p, j)
		}
	}
	return f
}

// duplicates has some requests of a process to a master arrive twice.
func (f *faults) duplicates(p *simPeer, master int) {
	rng := dice(f.s.seed, diceFaults, 1+p.index*simMasters+master)
	p.Links[master].Duplicate(func(cmd []string) bool {
		return testredis.Named("EVALSHA", "EVAL")(cmd) && rng.IntN(15) == 0
	}, nil)
}

func (f *faults) run(ctx context.Context) {
	total := 0
	for _, kind := range allFaults {
		total += kind.weight
	}
	for ctx.Err() == nil {
		pause(ctx, upTo(f.rng, f.gap))
		n := f.rng.IntN(total)
		for _, kind := range allFaults {
			if n -= kind.weight; n < 0 {
				if !excluded(kind.name) && kind.strike(f, ctx) {
					f.struck[kind.name]++
				}
				break
			}
		}
		f.s.checker.Sweep()
	}
}

// heal ends every fault.
func (f *faults) heal() {
	f.ends.Wait()
	for i, m := range f.s.Minis {
		m.Thaw()
		m.Recover()
		m.Promote()
		m.Skew(f.s.skews[i])
		if f.toDelete[i] {
			m.Miniredis().Del(testkit.Marker)
		}
	}
	f.s.checker.Amnesia() // some of these steps were forward
	for _, p := range f.s.peers {
		for _, link := range p.Links {
			link.Restore()
			link.Duplicate(nil, nil)
			link.DropPushes(nil)
			link.Cut()
		}
	}
}

// lasts runs end after a while, at the latest when the simulation ends.
func (f *faults) lasts(ctx context.Context, d time.Duration, end func()) bool {
	f.ends.Go(func() {
		pause(ctx, d)
		end()
	})
	return true
}

func (f *faults) anyPeer() *simPeer { return f.s.peers[f.rng.IntN(simPeers)] }

func (f *faults) anyLink() *testredis.Link { return f.anyPeer().Links[f.rng.IntN(simMasters)] }

func (f *faults) anyDirection() testredis.Direction {
	return []testredis.Direction{testredis.ToServer, testredis.ToClient, testredis.Both}[f.rng.IntN(3)]
}

// cut loses what is on its way: messages lost on TCP are a connection lost.
func (f *faults) cut(context.Context) bool {
	f.anyLink().Cut()
	return true
}

// blackhole loses what is on its way without telling.
func (f *faults) blackhole(ctx context.Context) bool {
	link := f.anyLink()
	link.Blackhole(f.anyDirection())
	return f.lasts(ctx, upTo(f.rng, 2*simTTL), link.Restore)
}

// late lets messages arrive long after they were sent, also over a connection that has been replaced since.
func (f *faults) late(ctx context.Context) bool {
	link := f.anyLink()
	link.Hold(f.anyDirection())
	return f.lasts(ctx, upTo(f.rng, 3*simTTL), link.Restore)
}

// deaf loses the messages of hand-offs.
func (f *faults) deaf(ctx context.Context) bool {
	link := f.anyLink()
	link.DropPushes(func([]string) bool { return true })
	return f.lasts(ctx, upTo(f.rng, 2*simTTL), func() { link.DropPushes(nil) })
}

// pause takes a process off the network, as if it stood still; what it sends meanwhile arrives after.
func (f *faults) pause(ctx context.Context) bool {
	p := f.anyPeer()
	for _, link := range p.Links {
		link.Hold(testredis.Both)
	}
	return f.lasts(ctx, upTo(f.rng, 2*simTTL), func() { restore(p.Links) })
}

// partition separates some processes from some masters, in one direction or both.
func (f *faults) partition(ctx context.Context) bool {
	masters := f.rng.Perm(simMasters)[:1+f.rng.IntN(simMasters)]
	dir := f.anyDirection()
	var links []*testredis.Link
	for _, i := range f.rng.Perm(simPeers)[:1+f.rng.IntN(simPeers)] {
		for _, m := range masters {
			links = append(links, f.s.peers[i].Links[m])
			f.s.peers[i].Links[m].Blackhole(dir)
		}
	}
	return f.lasts(ctx, upTo(f.rng, simTTL), func() { restore(links) })
}

func restore(links []*testredis.Link) {
	for _, link := range links {
		link.Restore()
	}
}

// frozen stops a master for a while; it then reads what was sent to it.
func (f *faults) frozen(ctx context.Context) bool {
	m := f.s.Minis[f.rng.IntN(simMasters)]
	m.Freeze()
	return f.lasts(ctx, upTo(f.rng, 2*simTTL), m.Thaw)
}

// stopped takes a master away; it comes back with its data.
func (f *faults) stopped(ctx context.Context) bool {
	m := f.s.Minis[f.rng.IntN(simMasters)]
	m.Stop()
	return f.lasts(ctx, upTo(f.rng, simTTL), m.Recover)
}

// wiped restarts a master empty, but none that a process with the stranger in its list may need to know the others.
func (f *faults) wiped(ctx context.Context) bool {
	i, ok := f.mayForget()
	if !ok || f.s.stranger >= 0 {
		return false
	}
	f.s.Minis[i].Promote()
	f.s.Minis[i].Crash()
	return f.lasts(ctx, upTo(f.rng, simTTL), f.s.Minis[i].Recover)
}

func (f *faults) snapshot(context.Context) bool {
	i := f.rng.IntN(simMasters)
	f.snapshots[i], f.outdated[i] = f.s.Minis[i].Snapshot(), false
	return true
}

// rolledBack restarts a master from an old save, with the marker of then and another run id. Sometimes the
// scripts are there already when the first client comes, as where somebody has loaded them. Where masters do not show
// their run ids, only the loss of the marker tells of the restart.
func (f *faults) rolledBack(ctx context.Context) bool {
	i, ok := f.mayForget()
	if !ok || f.snapshots[i] == nil {
		return false
	}
	m := f.s.Minis[i]
	m.Promote()
	f.toDelete[i] = f.toDelete[i] || f.outdated[i]
	switch {
	case !f.s.showsRuns:
		m.Crash()
		m.Rollback(f.snapshots[i])
		m.Miniredis().Del(testkit.Marker)
	case f.rng.IntN(2) == 0:
		m.Stop() // its scripts stay
		m.NewProcess()
		m.Rollback(f.snapshots[i])
	default:
		m.Crash()
		m.Rollback(f.snapshots[i])
	}
	return f.lasts(ctx, upTo(f.rng, simTTL/2), m.Recover)
}

// moved has the other server of a pair answer at a master's address: a replica that has been promoted and may lag, or
// the server that was the master before, with what it had then. The latter has been restarted, as the documents demand,
// unless every quorum knows of the server that has answered since.
func (f *faults) moved(ctx context.Context) bool {
	i, ok := f.mayForget()
	if !ok || !f.s.moves {
		return false
	}
	m, has := f.s.Minis[i], f.snapshots[i]
	m.Stop()
	time.Sleep(time.Millisecond) // what was on its way to it is lost
	m.Promote()
	if has == nil || f.outdated[i] || f.rng.IntN(2) == 0 {
		has = m.Snapshot()
	}
	first := f.spares[i] == nil
	if first {
		f.spares[i] = testredis.NewMini(f.s.T)
	}
	spare := f.spares[i]
	if f.s.showsRuns && (first || !f.isKnown(i)) {
		spare.NewProcess()
	}
	spare.Skew(f.s.skews[i] + f.ahead[i])
	if first || f.rng.IntN(3) > 0 {
		spare.Rollback(has)
	}
	if !f.s.showsRuns {
		spare.Miniredis().Del(testkit.Marker)
	}
	m.Swap(spare)
	return f.lasts(ctx, upTo(f.rng, simTTL/2), m.Recover)
}

// isKnown reports whether every quorum has another master that knows the process of this one.
func (f *faults) isKnown(master int) bool {
	run, known := f.s.Minis[master].RunID(), 0
	for i, m := range f.s.Minis {
		if i != master && strings.Contains(m.Miniredis().HGet(testkit.Marker, "terms"), run) {
			known++
		}
	}
	return known > simMasters/2
}

// demoted makes a master a replica, and a master again after a while: a replica of a server that does not answer, of an
// empty one, or of another master. In the last case it keeps that master's marker until somebody deletes it.
func (f *faults) demoted(ctx context.Context) bool {
	i, other := f.rng.IntN(simMasters), f.rng.IntN(simMasters)
	m := f.s.Minis[i]
	if !f.s.demotes || !f.isFounded(i) {
		return false
	}
	switch of := f.rng.IntN(3); {
	case of == 0:
	case !f.mayForgetOf(i):
		return false
	case of == 1 && f.s.stranger < 0:
		m.FlushAll()
	case of == 2 && f.s.showsRuns && other != i:
		m.Promote()
		m.Rollback(f.s.Minis[other].Snapshot())
		f.toDelete[i] = true
	default:
		return false
	}
	m.Demote()
	deletes := f.toDelete[i] && f.rng.IntN(2) == 0
	return f.lasts(ctx, upTo(f.rng, simTTL), func() {
		m.Promote()
		if deletes {
			m.Miniredis().Del(testkit.Marker)
		}
	})
}

// isFounded reports whether a quorum of the other masters have markers: a set may be founded by fit masters only.
func (f *faults) isFounded(without int) bool {
	marked := 0
	for i, m := range f.s.Minis {
		if i != without && m.Miniredis().Exists(testkit.Marker) {
			marked++
		}
	}
	return marked > simMasters/2
}

// clock sets a master's clock. Forward, its holds expire early, so exclusion is not promised for leases that stand.
func (f *faults) clock(context.Context) bool {
	if f.steps == 0 {
		return false
	}
	i := f.rng.IntN(simMasters)
	ahead := time.Duration((2*f.rng.Float64() - 1) * float64(f.steps))
	f.s.Minis[i].Skew(f.s.skews[i] + ahead)
	if ahead > f.ahead[i] {
		f.s.checker.Amnesia()
	}
	f.ahead[i] = ahead
	return true
}

// flushed empties all masters at once. They abstain as at a first start.
func (f *faults) flushed(context.Context) bool {
	if !f.flushes {
		return false
	}
	for i, m := range f.s.Minis {
		m.Promote()
		m.Crash()
		f.snapshots[i] = nil
	}
	for _, m := range f.s.Minis {
		m.Recover()
	}
	return true
}

// mayForget chooses a master that may lose data now.
func (f *faults) mayForget() (int, bool) {
	i := f.rng.IntN(simMasters)
	return i, f.mayForgetOf(i)
}

// mayForgetOf reports whether a master may lose data now: always fewer than a quorum have lost some that may still
// matter. A lease lives a TTL by its process's clock, unless a quorum of masters with their data has renewed it since.
func (f *faults) mayForgetOf(i int) bool {
	now := time.Now()
	recent := slices.DeleteFunc(slices.Clone(f.forgetting[:]), func(until time.Time) bool { return !until.After(now) })
	if len(recent) >= simMasters/2 && !f.forgetting[i].After(now) {
		return false
	}
	f.forgetting[i] = now.Add(simTTL + simTTL/10)
	return true
}

// delays gives a link's messages delays of mostly a few milliseconds, sometimes of more than the patience.
func delays(link *testredis.Link, rng *rand.Rand) {
	var mu sync.Mutex
	link.DelayFunc(testredis.Both, func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(50) == 0 {
			return upTo(rng, 150*time.Millisecond)
		}
		return 200*time.Microsecond + upTo(rng, 3*time.Millisecond)
	})
}
