package redlock_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var without = flag.String("redlock.without", "", "conditions and faults that no seed has, separated by commas")

func excluded(name string) bool { return slices.Contains(strings.Split(*without, ","), name) }

// conditions are what differs from one simulation to the next besides the faults. What is promised has to hold under
// all of them together, and in the end every process gets every lock. So fewer than a quorum of a process's masters
// are strangers or have clocks that are far off.
type conditions struct {
	tuned    [simPeers]bool          // whether the clients are those of rwlock.Dial
	clocks   [simPeers]time.Duration // how far the process's clock is ahead
	alias    [simPeers]bool          // the process reaches the masters by other names
	lists    [simPeers]bool          // the process has the stranger in the place of one master
	sends    [simPeers]bool          // the process does not wait for its releases
	confirms [simPeers]bool          // the process confirms its hand-offs

	stranger int                       // the place of the stranger, -1 for none
	copied   bool                      // the stranger is a promoted copy of the master in that place
	offsets  [simMasters]time.Duration // how far the master's clock is ahead
	moves    bool                      // the masters are pairs of servers
	demotes  bool                      // masters become replicas for a while
	replaces bool                      // a master is replaced by another server, as the documents say
}

// strangerName and the others are the names of conditions for -redlock.without.
const (
	mixedClients  = "mixed clients"
	clientClocks  = "client clocks"
	masterClocks  = "master clocks"
	otherNames    = "other names"
	otherLists    = "other lists"
	movedMasters  = "moved"
	demotedMaster = "demoted"
	replacements  = "replaced"
	background    = "background"
	confirmed     = "confirmed"
)

func newConditions(seed int64) *conditions {
	rng := dice(seed, diceConditions, 0)
	drawn := func(name string, of int) bool { return rng.IntN(of) == 0 && !excluded(name) }
	c := &conditions{stranger: -1}
	allTuned := rng.IntN(2) == 0
	mixed := !drawn(mixedClients, 2)
	for i := range c.tuned {
		c.tuned[i] = mixed && i%2 == 1 || !mixed && allTuned
	}
	if drawn(clientClocks, 2) {
		for _, i := range rng.Perm(simPeers)[:3] {
			c.clocks[i] = farOff[rng.IntN(len(farOff))]
		}
	}
	if drawn(otherNames, 3) {
		for _, i := range rng.Perm(simPeers - 1)[:4] {
			c.alias[i+1] = true // the first one founds the set
		}
	}
	if drawn(otherLists, 4) {
		c.stranger, c.copied = rng.IntN(simMasters), rng.IntN(2) == 0
		for _, i := range rng.Perm(simPeers - 1)[:4] {
			c.lists[i+1] = true
		}
	}
	if drawn(masterClocks, 3) {
		for _, i := range rng.Perm(simMasters)[:1+rng.IntN(2)] {
			c.offsets[i] = farOff[rng.IntN(len(farOff))]
			if c.stranger >= 0 {
				break
			}
		}
	}
	c.moves, c.demotes = drawn(movedMasters, 2), drawn(demotedMaster, 2)
	c.replaces = drawn(replacements, 3) && c.stranger < 0 // lists that differ must not found sets at the same time
	if drawn(background, 2) {
		for i := range c.sends {
			c.sends[i] = rng.IntN(3) > 0
		}
	}
	if drawn(confirmed, 3) {
		for i := range c.confirms {
			c.confirms[i] = rng.IntN(2) == 0
		}
	}
	return c
}

// farOff are by how much a clock is ahead that is not synchronized.
var farOff = []time.Duration{
	-4 * time.Second, -2 * time.Second, 1200 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

// oneFounds reports whether the set has to be there before most processes start.
func (c *conditions) oneFounds() bool { return c.stranger >= 0 || slices.Contains(c.alias[:], true) }

func (c *conditions) String() string {
	count := func(all []bool) (n int) {
		for _, is := range all {
			if is {
				n++
			}
		}
		return n
	}
	kinds := map[string]any{
		"tuned": count(c.tuned[:]), "clocks of processes": c.clocks, "clocks of masters": c.offsets,
		"with other names": count(c.alias[:]), "with another list": count(c.lists[:]), "of a copy": c.copied,
		"moves": c.moves, "demotes": c.demotes, "replaces": c.replaces, "in the background": count(c.sends[:]),
		"with confirmed hand-offs": count(c.confirms[:]),
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s: %v", kind, kinds[kind]))
	}
	return strings.Join(parts, ", ")
}

func newSimulation(w *world, seed int64) *simulation {
	s := &simulation{
		world: w, conditions: newConditions(seed), seed: seed, checker: judge.For(w, fmt.Sprintf("seed %d", seed)),
	}
	rng := dice(seed, diceWorld, 0)
	s.showsRuns = s.stranger >= 0 || seed%4 != 2 // a copy is known by its run id
	for i, m := range s.Minis {
		if s.showsRuns {
			m.NewProcess()
		}
		s.skews = append(s.skews, s.offsets[i]+skew(rng))
		m.Skew(s.skews[i])
	}
	for i := range 1 + rng.IntN(simNames) {
		s.names = append(s.names, fmt.Sprintf("resource-%d", i))
	}
	var other *world // with the stranger
	for i := range simPeers {
		of := w
		if s.lists[i] {
			if other == nil {
				other = s.withStranger()
			}
			of = other
		}
		p := &simPeer{
			index: i, net: testkit.Net{Tuned: s.tuned[i]}, rng: dice(seed, diceWork, i), pass: dice(seed, diceTickets, i),
		}
		p.process = s.connect(of, p)
		for j, link := range p.Links {
			delays(link, dice(seed, diceDelay, i*simMasters+j))
		}
		p.opts = []rwlock.Option{
			rwlock.WithTTL(simTTL), rwlock.WithMeta(fmt.Sprintf("peer-%d", i)), redlock.WithNodeTimeout(80 * time.Millisecond),
			drifting(s.clocks[i]+skew(rng), 1+(rng.Float64()-0.5)*0.008),
		}
		if s.sends[i] {
			p.opts = append(p.opts, rwlock.WithBackgroundRelease())
		}
		if s.confirms[i] {
			p.opts = append(p.opts, rwlock.WithConfirmedHandOff())
		}
		p.Start(p.opts...)
		s.peers = append(s.peers, p)
		if i == 0 && s.oneFounds() {
			p.Section("warm-up")
		}
	}
	return s
}

func skew(rng *rand.Rand) time.Duration {
	return time.Duration((2*rng.Float64() - 1) * float64(simSkew))
}

// connect gives a process its links, by the names that it has for the masters.
func (s *simulation) connect(w *world, p *simPeer) *process {
	for j, m := range w.Minis {
		m.SetAddr(s.address(p, j))
	}
	return w.Connect(p.net)
}

// address returns the name by which a process knows a master.
func (s *simulation) address(p *simPeer, master int) string {
	switch {
	case s.lists[p.index] && master == s.stranger:
		return "stranger:6379"
	case s.alias[p.index]:
		return fmt.Sprintf("alias-%d:6379", master)
	case s.next != nil && s.Minis[master] == s.next:
		return "next:6379"
	default:
		return fmt.Sprintf("mini-%d:6379", master)
	}
}

// withStranger is the world of the processes that have another server in the place of a master.
func (s *simulation) withStranger() *world {
	stranger := testredis.NewMini(s.T)
	stranger.NewProcess()
	stranger.Skew(s.skews[s.stranger])
	if s.copied {
		stranger.Rollback(s.Minis[s.stranger].Snapshot())
	}
	other := *s.world
	other.Minis = slices.Clone(s.Minis)
	other.Minis[s.stranger] = stranger
	return &other
}

// replaceMaster replaces one master by another server, as WithQuarantine says. Another one may be away meanwhile, and
// has the marker of before when it is back.
func (s *simulation) replaceMaster(f *faults) {
	for _, p := range s.peers {
		if err := p.Close(); err != nil {
			s.Errorf("seed %d: close: %v", s.seed, err)
		}
	}
	time.Sleep(simAbsence)
	i := f.rng.IntN(simMasters)
	s.next = testredis.NewMini(s.T)
	if s.showsRuns {
		s.next.NewProcess()
	}
	s.next.Skew(s.skews[i])
	s.Minis[i], f.snapshots[i] = s.next, nil
	var away *testredis.Mini
	for j, m := range s.Minis {
		f.outdated[j], f.spares[j] = true, nil
		if away == nil && j != i && f.rng.IntN(simMasters) == 0 {
			away, f.toDelete[j] = m, true
			m.Stop()
		} else {
			m.Miniredis().Del(testkit.Marker)
		}
	}
	for _, p := range s.peers {
		part := s.Part(i)
		s.next.SetAddr(s.address(p, i))
		one := part.Connect(p.net)
		p.Links[i], p.Clients[i] = one.Link, one.Client
		delays(one.Link, dice(s.seed, diceDelay, (simPeers+p.index)*simMasters+i))
		f.duplicates(p, i)
		p.Start(p.opts...)
		if p.index == 0 && (away != nil || s.oneFounds()) {
			p.Section("warm-up")
		}
	}
	if away != nil {
		away.Recover()
	}
}
