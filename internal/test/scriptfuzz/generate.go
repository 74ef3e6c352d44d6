package scriptfuzz

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// Kind is what happens in a sequence in addition to calls and time that passes.
type Kind string

// The kinds, see the package's doc.
const (
	Plain Kind = "plain"
	Back  Kind = "back"
	Lost  Kind = "lost"
	Many  Kind = "many"
)

// Kinds are all of them.
var Kinds = []Kind{Plain, Back, Lost, Many}

// Draw draws a sequence from a seed while it plays it, and returns as much of it as was played. The same seed has the
// same sequence.
func Draw(p *Player, seed uint64, kind Kind, steps int) (Sequence, error) {
	g := &generator{p: p, rnd: rand.New(rand.NewPCG(seed, 4711)), kind: kind, asked: map[int]step{}}
	// Tokens and times have their usual lengths.
	s := Sequence{Several: g.one(2), Start: 1_800_000_000_000_000 + g.rnd.Int64N(1_000_000_000_000)}
	if err := p.begin(s); err != nil {
		return s, err
	}
	if s.Several {
		g.next = append(g.next, g.markerStep("join"))
		g.next[0].Marker.Old = true
	}
	for len(s.steps) < steps {
		one := g.step()
		one.Older = p.older != nil && g.one(2)
		s.steps = append(s.steps, one)
		if err := p.step(one); err != nil {
			return s, err
		}
	}
	return s, p.finish()
}

// generator draws steps. It looks at the model to find calls that have an effect.
type generator struct {
	p     *Player
	rnd   *rand.Rand
	kind  Kind
	next  []step       // are taken first
	calls []step       // that were drawn, the newest last
	asked map[int]step // the acquires and joins, by hold
	order []int        // of their holds
}

func (g *generator) one(in int) bool { return g.rnd.IntN(in) == 0 }

func pick[T any](g *generator, from ...T) T { return from[g.rnd.IntN(len(from))] }

func (g *generator) step() step {
	if len(g.next) > 0 {
		s := g.next[0]
		g.next = g.next[1:]
		return s
	}
	if g.one(12) {
		return g.group()
	}
	s := g.draw()
	if g.p.m.several && s.Do != doJump && s.Do != doLose && s.Do != doRestart && s.Do != string(scripts.Marker) {
		s.Vote = g.vote()
	}
	s.Alone = !g.p.m.several && g.kind != Lost && g.one(12)
	if s.Do == string(scripts.Acquire) || s.Do == string(scripts.Join) {
		if _, known := g.asked[s.Hold]; !known {
			g.asked[s.Hold] = s
			g.order = append(g.order, s.Hold)
		}
	}
	g.calls = append(g.calls, s)
	return s
}

func (g *generator) draw() step {
	switch k := g.rnd.IntN(100); {
	case k < 24:
		return g.acquire()
	case k < 29:
		return g.conversion()
	case k < 32:
		return g.adoption()
	case k < 39 && len(g.calls) > 0: // a call that comes again, perhaps late
		return g.calls[len(g.calls)-1-g.rnd.IntN(min(len(g.calls), 12))]
	case k < 56:
		return g.release()
	case k < 66:
		return g.renewal()
	case k < 76:
		return g.refresh()
	case k < 81:
		return g.join()
	case k < 84:
		return step{Do: string(scripts.Inspect)}
	case k < 87:
		return step{Do: string(scripts.Break), Hold: g.any(), Tomb: pick(g, ttls[:4]...), Flag: g.one(2)}
	case k < 92:
		return g.event()
	case g.p.m.several:
		return g.quorum()
	default:
		return g.acquire()
	}
}

var ttls = []int64{100, 400, 3000, 10_000, 3_600_001, 7_200_000, 86_400_000}

// fresh is a call for a new hold, older or younger than the holds before.
func (g *generator) fresh(of scripts.Name) step {
	s := step{
		Do: string(of), Mode: pick(g, "r", "w"), TTL: pick(g, ttls...), Meta: g.rnd.IntN(len(metas)),
		Route: pick(g, heardRoute, heardRoute, shardedRoute, deafRoute, uncountRoute),
	}
	for s.Hold == 0 || g.asked[s.Hold].Hold != 0 {
		s.Hold = 1 + g.rnd.IntN(9999)
	}
	s.Claim = min(s.TTL, 3000)
	s.Order = "a"
	if g.p.m.several {
		s.Order = "h"
	}
	if g.one(3) {
		s.Order = "0"
	}
	if g.kind == Many { // a waiter that only its own call knows to be alive would be sidelined by the next call
		s.Route = pick(g, heardRoute, uncountRoute)
	}
	return s
}

func (g *generator) acquire() step {
	s := g.fresh(scripts.Acquire)
	switch g.rnd.IntN(8) {
	case 0, 1:
		s.Owner = pick(g, "A", "B", "C")
	case 2, 3:
		s.Block = pick(g, int64(1), 16, 1024, 65_536, 2_000_000)
	case 4:
		s.Owner = "self"
	}
	if g.kind == Many && g.one(24) {
		g.burst(s)
	}
	return s
}

// burst draws more than 64 acquires like this one. Every second burst has one mode and finds the lock free, so that its
// readers enter together.
func (g *generator) burst(like step) {
	mixed := g.one(2)
	if !mixed {
		g.next = append(g.next, step{Do: doJump, Us: 1000 * slices.Max(ttls)})
		if like.Owner == "" && g.one(2) {
			like.Block = 16
		}
	}
	for range 66 + g.rnd.IntN(70) {
		s := g.fresh(scripts.Acquire)
		s.Mode, s.Owner, s.Block, s.Quiet = like.Mode, like.Owner, like.Block, true
		s.TTL, s.Claim = like.TTL, like.Claim
		if mixed && g.one(8) {
			s.Mode = pick(g, "r", "w")
		}
		if s.Order == "0" || s.Owner == "self" {
			s.Owner = ""
		}
		s.Vote = g.vote()
		g.asked[s.Hold] = s
		g.order = append(g.order, s.Hold)
		g.next = append(g.next, s)
	}
	if g.one(2) { // all of them expire, and the next call purges some
		release := step{Do: string(scripts.Release), Hold: g.any(), Vote: g.vote()}
		g.next = append(g.next, step{Do: doJump, Us: 1000 * like.TTL}, release)
	}
}

// standing returns the acquire or join of a hold that stands, of which is() is true.
func (g *generator) standing(is func(*hold) bool) (of step, ok bool) {
	var all []int
	for _, n := range g.order {
		if h := g.p.m.stands(holdID(n)); h != nil && is(h) {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return step{}, false
	}
	return g.asked[pick(g, all...)], true
}

// conversion is an acquire in place of a hold that stands, as its client sends it.
func (g *generator) conversion() step {
	from, ok := g.standing(func(*hold) bool { return true })
	if !ok {
		return g.acquire()
	}
	h := g.p.m.holds[holdID(from.Hold)]
	s := g.fresh(scripts.Acquire)
	s.From, s.TTL, s.Claim, s.Route = from.Hold, from.TTL, from.Claim, from.Route
	s.Owner, s.Block = strings.TrimLeft(h.named(), "0"), h.block
	if s.Mode = "w"; h.mode == "w" {
		s.Mode, s.Order = "r", "0"
	}
	return s
}

// renewal is a renewal of some holds, or of a hold that its client detaches.
func (g *generator) renewal() step {
	s := step{Do: string(scripts.Renew), Others: g.some(3), TTL: pick(g, ttls...), Plus: int64(g.rnd.IntN(8) / 7)}
	if len(s.Others) == 1 && g.one(3) {
		s.Secret = s.Others[0]
	}
	writes := func(n int) bool { h := g.p.m.holds[holdID(n)]; return h == nil || h.mode == "w" }
	if s.Kind = pick(g, "w", "s", "r"); s.Kind == "r" && slices.ContainsFunc(s.Others, writes) {
		s.Kind = ""
	}
	return s
}

// adoption is an acquire in place of a hold that another client has detached: often of one that has an adopter, and
// mostly with its token, mode and secret, and after its mark. The rest may come at once: the release of the detached
// hold, with a tombstone.
func (g *generator) adoption() step {
	from, ok := g.standing(func(h *hold) bool { return h.adopter() != "" })
	if !ok || g.one(2) {
		from, ok = g.standing(func(h *hold) bool { return h.named() == "" && h.block == 0 })
	}
	if !ok {
		return g.acquire()
	}
	s := g.fresh(scripts.Acquire)
	s.Adopts, s.From, s.Of, s.Secret, s.Order = true, from.Hold, from.Hold, from.Hold, "0"
	of := g.p.m.holds[holdID(from.Hold)]
	if s.Mode = of.mode; g.one(12) {
		s.Mode = pick(g, "r", "w")
	}
	if g.one(12) {
		s.Secret++
	}
	if g.one(12) {
		s.Plus = pick(g, int64(-1), 1)
	}
	if g.one(12) { // a hold that has gone
		s.From = g.any()
		s.Of = s.From
	}
	release := step{
		Do: string(scripts.Release), Hold: s.From, Tomb: pick(g, ttls[:4]...), Flag: true, Vote: g.vote(),
	}
	releases := g.one(3)
	if of.mark == "" && !g.one(6) {
		s.Vote = g.vote()
		g.asked[s.Hold] = s
		g.order = append(g.order, s.Hold)
		g.next = append(g.next, s)
		s = step{Do: string(scripts.Renew), Others: []int{from.Hold}, TTL: pick(g, ttls...), Secret: from.Hold}
	}
	if releases {
		g.next = append(g.next, release)
	}
	return s
}

// some returns up to n holds, mostly those that hold or wait.
func (g *generator) some(n int) []int {
	var all []int
	for range 1 + g.rnd.IntN(n) {
		if hold := g.any(); !slices.Contains(all, hold) {
			all = append(all, hold)
		}
	}
	return all
}

// any returns a hold: mostly one that holds or waits, else one of late, or an unused one.
func (g *generator) any() int {
	var there []int
	for _, n := range g.order {
		if g.p.m.find(holdID(n)) != nil {
			there = append(there, n)
		}
	}
	switch {
	case len(there) > 0 && !g.one(4):
		return pick(g, there...)
	case len(g.order) > 0 && !g.one(8):
		return g.order[len(g.order)-1-g.rnd.IntN(min(len(g.order), 20))]
	default:
		return 10_000 + g.rnd.IntN(100)
	}
}

func (g *generator) release() step {
	s := step{Do: string(scripts.Release), Hold: g.any()}
	if g.one(4) {
		s.Tomb, s.Flag = pick(g, ttls[:4]...), g.one(2)
		s.Again = !s.Flag && g.one(3)
	}
	if g.one(6) {
		for _, n := range g.some(map[bool]int{true: 90, false: 4}[g.kind == Many]) {
			if n != s.Hold {
				s.Others = append(s.Others, n)
			}
		}
	}
	if h := g.p.m.stands(holdID(s.Hold)); h != nil && h.block == 0 && len(s.Others) == 0 && g.one(3) {
		s.Least, s.Rest = pick(g, ttls...), pick(g, ttls...)
	}
	if n := s.Hold; len(s.Others) == 0 && g.isAhead(n) {
		s.Outrun, s.Of, s.Plus = true, n, g.allowed(n)
	}
	if g.one(12) { // the release overtakes its acquire
		late := g.fresh(scripts.Acquire)
		if g.one(3) {
			late = g.join()
		}
		late.Vote = g.vote()
		s = step{Do: string(scripts.Release), Hold: late.Hold, Tomb: pick(g, ttls[:4]...), Again: g.one(4)}
		g.next = append(g.next, late)
	}
	if g.kind == Many && g.one(12) { // more than 64 tombstones
		for range 66 + g.rnd.IntN(20) {
			tomb := step{Do: string(scripts.Release), Tomb: pick(g, ttls[:4]...), Vote: g.vote(), Quiet: true}
			tomb.Hold = 10_000 + g.rnd.IntN(1000)
			g.next = append(g.next, tomb)
		}
	}
	return s
}

func (g *generator) refresh() step {
	s := step{Do: string(scripts.Refresh)}
	if g.one(3) {
		s.Route = pick(g, heardRoute, deafRoute, uncountRoute)
		if g.kind == Many {
			s.Route = heardRoute
		}
	}
	if !g.one(8) {
		s.Others = g.some(8)
	}
	return s
}

func (g *generator) join() step {
	s := g.fresh(scripts.Join)
	s.Owner = pick(g, "A", "B", "C")
	var owners []string
	for _, n := range g.order {
		if h := g.p.m.stands(holdID(n)); h != nil && h.named() != "" {
			owners = append(owners, g.asked[n].Owner)
			s.Of = n
		}
	}
	if len(owners) > 0 && !g.one(3) {
		s.Owner = pick(g, owners...)
	}
	if g.one(2) {
		s.Of = 0
	}
	if g.one(8) { // perhaps a hold that was used before
		s.Hold = cmp.Or(g.any(), s.Hold)
	}
	return s
}

func (g *generator) vote() *voteArg {
	if !g.p.m.several {
		return nil
	}
	v := &voteArg{Ahead: g.rnd.Int64N(4_000_000) - 1_000_000, Seen: "now"}
	switch g.rnd.IntN(40) {
	case 0, 1:
		v.Check = true
	case 2, 3, 4:
		v.Seen = "-"
	case 5:
		if g.kind != Many {
			v.Seen = "old"
		}
	}
	if g.kind == Many {
		v.Check = false
	}
	return v
}

func (g *generator) quorum() step {
	n := g.any()
	s := step{Do: pick(g, string(scripts.Raise), string(scripts.Yield), string(scripts.Yield)), Hold: n, Of: n}
	s.Flag = s.Do == string(scripts.Yield) && n%3 == 0
	s.Plus = pick(g, 0, 0, 0, int64(1), g.rnd.Int64N(900_000), g.rnd.Int64N(3_000_000))
	if s.Do == string(scripts.Raise) && g.one(2) { // to a token near the largest that was counted
		s.Plus = g.p.m.t - g.p.m.tokens[holdID(n)] + int64(g.rnd.IntN(3)) - 1
	}
	if len(g.order) > 0 && g.one(3) {
		of, plus := g.asked[pick(g, g.order...)], s.Plus
		s = of
		s.Do, s.Of, s.Plus, s.Trusted, s.Order = string(scripts.Regain), of.Hold, plus, g.one(2), ""
		if g.isAhead(of.Hold) {
			s.Plus = g.allowed(of.Hold)
		}
	}
	return s
}

// isAhead reports whether a hold was granted last with a token that is further ahead than the clock allows.
func (g *generator) isAhead(n int) bool {
	return g.p.m.several && g.p.m.tokens[holdID(n)] > g.p.m.us+aheadMost
}

// allowed is what is added to the last token of a hold for the token of a lease, which the clock allows or nearly so.
func (g *generator) allowed(n int) int64 {
	return g.p.m.us - g.p.m.tokens[holdID(n)] + g.rnd.Int64N(aheadMost+aheadMost/8)
}

// event is what no client does to the lock.
func (g *generator) event() step {
	if g.p.m.several && g.one(5) && g.kind != Many {
		return g.ofMarker()
	}
	if g.kind == Lost && g.one(2) {
		return step{Do: doLose, Key: pick(g, ":h", ":q", ":x", ":h", ":q", ":x", "")}
	}
	if !g.p.m.several && g.one(40) {
		return g.markerStep("single")
	}
	s := step{Do: doJump}
	switch g.rnd.IntN(6) {
	case 0:
		s.Us = g.rnd.Int64N(1000)
	case 1, 2:
		s.Us = g.rnd.Int64N(500_000)
	case 3:
		s.Us = g.rnd.Int64N(5_000_000)
	case 4:
		s.Us = g.rnd.Int64N(2_000_000_000)
	case 5:
		s.Us = g.rnd.Int64N(20_000_000_000)
	}
	if g.kind == Back && g.one(3) {
		s.Us = -s.Us / 10
	}
	return s
}

// ofMarker is a call of marker.lua or what makes one necessary. A master without a vote gets it back soon.
func (g *generator) ofMarker() step {
	switch g.rnd.IntN(8) {
	case 0:
		g.next = append(g.next, g.other(), g.other(), g.markerStep("join"))
		return step{Do: doLose, Key: loseMarker}
	case 1:
		check := g.other()
		check.Vote.Check = true
		g.next = append(g.next, check, g.other(), g.markerStep("succeed"), g.other())
		return step{Do: doRestart}
	default:
		return g.markerStep(pick(g, "look", "join", "note", "succeed"))
	}
}

// other is a call that needs a vote.
func (g *generator) other() step {
	for {
		if s := g.draw(); s.Do != doJump && s.Do != doLose && s.Do != doRestart && s.Do != string(scripts.Marker) {
			s.Vote = g.vote()
			return s
		}
	}
}

func (g *generator) markerStep(purpose string) step {
	c := markerCall{Purpose: purpose, Set: "S1", Seat: g.rnd.IntN(3), Old: g.one(2)}
	if g.one(8) {
		c.Set = "S2"
	}
	if g.one(4) {
		c.Of = pick(g, "S1", "S2")
	}
	for seat := range g.rnd.IntN(4) {
		run := pick(g, "aa", "bb", "", thisProcess)
		c.Terms += fmt.Sprintf("%d:%s ", g.rnd.IntN(3), run)
		if seat == 2 {
			break
		}
	}
	return step{Do: string(scripts.Marker), Marker: &c}
}
