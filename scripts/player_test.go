package scripts_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// player holds what a random sequence has to go by.
type player struct {
	e      *env
	draw   func(n int) int
	m      *model
	asked  []request        // what was asked for, the newest last
	tokens map[string]int64 // what holds were told
	vote   vote
	last   call
	log    []string
}

func playRandomly(e *env, draw func(n int) int, quorum bool, steps int) {
	p := &player{e: e, draw: draw, m: newModel(quorum), tokens: map[string]int64{}}
	p.m.alone = e.alone
	defer func() {
		if e.t.Failed() {
			e.t.Logf("the last steps:\n%s", strings.Join(p.log[max(0, len(p.log)-40):], "\n"))
		}
	}()
	e.newMarker()
	for range steps {
		if draw(3) == 0 {
			e.pass(time.Duration(draw(claim)) * time.Millisecond)
		}
		p.step()
		if !e.alone && draw(16) == 0 {
			p.lose()
		}
		if draw(4) == 0 {
			p.send(p.last)
		}
		p.check()
	}
	if draw(2) == 0 { // all give back what they have, or all have crashed
		for _, r := range p.asked {
			p.play(release(r.hold, 0))
		}
	}
	e.pass(2 * ttl * time.Millisecond)
	p.play(refresh())
	e.onlyTokensStay()
}

// lose deletes one of the zsets, and lets the next refresh make it again. A hold is then given all the time that its
// record allows.
func (p *player) lose() {
	p.e.t.Helper()
	lost := []string{":h", ":q", ":x"}[p.draw(3)]
	p.log = append(p.log, "lost "+lost)
	p.e.lose(lost)
	if lost == ":h" {
		for i := range p.m.holds {
			p.m.holds[i].expiry = p.m.holds[i].latest
		}
	}
	p.play(refresh())
}

// play sends a request, to one of several masters with some proposal.
func (p *player) play(c call) {
	p.e.t.Helper()
	if p.m.quorum {
		p.vote = vote{proposal: p.e.now().UnixMicro() + int64(p.draw(5)-2)*700_000, seen: setID}
		c = p.vote.of(c)
	}
	p.send(c)
}

// send sends a request and compares its answer with the model's.
func (p *player) send(c call) {
	p.e.t.Helper()
	if c.script == "" {
		return
	}
	p.last = c
	before := p.m.t
	reply := p.e.run(c)
	got, want := p.compare(c, reply)
	remember(c, reply, p.tokens)
	p.log = append(p.log, fmt.Sprintf("%s %q -> %v, want %v", c.script, c.args, reply, want))
	require.Equal(p.e.t, want, got, p.log[len(p.log)-1])
	require.GreaterOrEqual(p.e.t, p.m.t, before, "tokens go forward")
}

func (p *player) compare(c call, reply []any) (got, want []int64) {
	id, number := c.args[1:], func(i int) int64 {
		n, _ := strconv.ParseInt(c.args[i], 10, 64)
		return n
	}
	n := make([]int64, len(reply))
	for i, field := range reply {
		n[i], _ = field.(int64)
	}
	clock := map[scripts.Name]int{scripts.Refresh: 0, scripts.Renew: 0, scripts.Release: 1}
	at, ok := clock[c.script]
	if !ok {
		at = 3
	}
	p.m.begin(n[at], p.e.passed, p.vote.proposal)
	var status, token int64
	switch c.script {
	case scripts.Acquire:
		status, token = p.m.acquire(asHold(id[0], c.args[4]), c.args[3], number(2))
	case scripts.Join:
		status, token = p.m.join(asHold(id[0], c.args[5]), number(4), number(6))
	case scripts.Raise:
		status, token = p.m.raise(id[0], number(2))
	case scripts.Yield:
		status, token = p.m.yield(id[0], number(2))
	case scripts.Regain:
		status, token = p.m.regain(asHold(id[0], c.args[4]), number(2), number(3))
	case scripts.Renew:
		return n[1:], []int64{p.m.renew(id[0], number(2), number(3))}
	case scripts.Release:
		if reads := p.m.releaseReadsClock(id[0], number(2), c.args[3] == "1"); !reads {
			require.Zero(p.e.t, n[1], "the clock is read in the common case")
		}
		return []int64{n[0], n[2]}, []int64{p.m.release(id[0], number(2), c.args[3] == "1"), 0}
	case scripts.Refresh:
		statuses, tokens := p.m.refresh(c.args[1], number(2), c.args[3] == "1", id[3:]...)
		for i := range statuses {
			got, want = append(got, n[3+3*i], n[4+3*i]), append(want, statuses[i], tokens[i])
		}
		return got, want
	}
	return append(n[:2:2], blockOf(n)), []int64{status, token, p.m.first}
}

// blockOf returns the first token of the block that a reply tells of, or 0.
func blockOf(reply []int64) int64 {
	if len(reply) == 5 {
		return reply[4]
	}
	return 0
}

// check compares what inspect.lua shows with the model, and looks at the promises themselves.
func (p *player) check() {
	p.e.t.Helper()
	reply := p.e.run(inspect())
	p.m.begin(reply[0].(int64), p.e.passed, 0)
	want, waiting := p.m.shown()
	holders, waiters := p.inspected(reply)
	require.Equal(p.e.t, want, holders)
	require.Equal(p.e.t, waiting, waiters)
	require.Equal(p.e.t, p.m.t, reply[2])
	p.countsAgree()

	converts := map[string]bool{} // both stand while one is converted to the other
	for _, r := range p.asked {
		if r.from != "" {
			converts[ulid(r.hold)], converts[ulid(r.from)] = true, true
		}
	}
	owners, write := map[string]bool{}, false
	for _, h := range holders {
		if !converts[h.id] {
			owners[h.owner] = true
			write = write || h.mode == "w"
		}
	}
	require.True(p.e.t, len(owners) == 1 || !write, "another owner is in beside a writer: %v", holders)
}

// shown returns the holders and waiters that inspect.lua has to show.
func (m *model) shown() (want, waiting []modelHold) {
	standing := m.holds
	if m.writer != nil {
		standing = append(slices.Clone(standing), *m.writer)
	}
	for _, h := range standing {
		if h.expiry > m.ms {
			want = append(want, modelHold{id: h.id, owner: h.owner, mode: h.mode, expiry: h.expiry, token: h.token})
		}
	}
	for _, h := range append(slices.Clone(m.queue), m.aside...) {
		if m.until(h) > m.ms && h.state != 'x' {
			waiting = append(waiting, modelHold{id: h.id, owner: h.owner, mode: h.mode, state: h.state, place: h.place})
		}
	}
	slices.SortFunc(want, func(x, y modelHold) int {
		return cmp.Or(cmp.Compare(x.expiry, y.expiry), cmp.Compare(x.id, y.id))
	})
	slices.SortFunc(waiting, func(x, y modelHold) int {
		return cmp.Or(cmp.Compare(x.place, y.place), cmp.Compare(x.id, y.id))
	})
	return want, waiting
}

// inspected returns the holders and waiters in a reply of inspect.lua.
func (p *player) inspected(reply []any) (holders, waiters []modelHold) {
	for _, entry := range reply[3].([]any) {
		h := entry.([]any)
		holders = append(holders, modelHold{
			id: h[0].(string), owner: h[1].(string), mode: h[2].(string), expiry: p.m.ms + h[5].(int64), token: h[7].(int64),
		})
		require.Equal(p.e.t, max(p.m.counted(h[1].(string)), 1), h[4], "counter of %s", h[1])
	}
	for _, entry := range reply[4].([]any) {
		w := entry.([]any)
		waiters = append(waiters, modelHold{
			id: w[0].(string), owner: w[1].(string), mode: w[2].(string), state: w[6].(string)[0], place: w[7].(int64),
		})
	}
	return holders, waiters
}

// countsAgree compares the counts in the hash with the zsets.
func (p *player) countsAgree() {
	p.e.t.Helper()
	counts := [3]int64{}
	for i := range counts {
		members, err := p.e.do("ZCARD", lockKeys("n")[i+1]).AsInt64()
		require.NoError(p.e.t, err)
		counts[i] = members
	}
	want := ""
	if counts != [3]int64{} {
		want = fmt.Sprintf("%d %d %d", counts[0], counts[1], counts[2])
	}
	require.Equal(p.e.t, want, p.e.field(lockKey, "n"))
}

// What a random sequence asks for: often anew, often for what was asked for of late.

func (p *player) pick() request {
	if len(p.asked) == 0 {
		return p.fresh()
	}
	return p.asked[max(0, len(p.asked)-1-p.draw(8))]
}

func (p *player) fresh() request {
	r := request{hold: fmt.Sprintf("%d%04d", 1+p.draw(9), len(p.asked)), mode: []string{"r", "r", "w"}[p.draw(3)]}
	r.ttl, r.claim = ttl, claim
	switch p.draw(5) {
	case 0, 1:
		r.owner = string(rune('A' + p.draw(3)))
	case 2:
		r.owner = r.hold
	case 3:
		r = r.ofCohort([]int{1, 2, 400_000}[p.draw(3)])
	}
	if p.draw(3) == 0 {
		r.route = deaf
	}
	if len(p.asked) > 0 && p.draw(4) == 0 {
		r.from = p.pick().hold
	}
	r.meta = strings.Repeat("m", p.draw(3)*15)
	p.asked = append(p.asked, r)
	return r
}

// conversion asks for a hold in the place of one that stands, as its client does: mostly.
func (p *player) conversion() request {
	r, standing := p.fresh(), slices.Clone(p.m.holds)
	if p.m.writer != nil {
		standing = append(standing, *p.m.writer)
	}
	if len(standing) == 0 {
		return r
	}
	slices.SortFunc(standing, func(x, y modelHold) int { return cmp.Compare(x.id, y.id) })
	from := standing[p.draw(len(standing))]
	of := p.asked[slices.IndexFunc(p.asked, func(r request) bool { return ulid(r.hold) == from.id })]
	if r.owner = of.owner; of.owner == of.hold {
		r.owner = r.hold
	}
	r.from, r.mode = of.hold, map[string]string{"r": "w", "w": "r"}[from.mode]
	p.asked[len(p.asked)-1] = r
	return r
}

func (p *player) step() {
	queueing := acquire
	if p.m.quorum {
		queueing = acquireByID
	}
	switch p.draw(20) {
	case 0, 1, 2, 3:
		p.play(queueing(p.fresh()))
	case 4:
		p.play(tryAcquire(p.fresh()))
	case 5:
		p.play(queueing(p.pick()))
	case 6:
		r := p.fresh()
		r.owner = string(rune('A' + p.draw(3)))
		if owners := slices.Sorted(maps.Keys(p.m.owners)); len(owners) > 0 && p.draw(2) == 0 {
			r.owner = owners[p.draw(len(owners))]
		}
		p.play(join(r.claiming([]int64{0, p.tokens[ulid(p.pick().hold)]}[p.draw(2)])))
	case 7, 8:
		r := p.pick()
		p.play(renew(r.hold, ttl, p.tokens[ulid(r.hold)]+int64(p.draw(8)/7)))
	case 9:
		p.play(refresh(p.pick().hold, p.pick().hold))
	case 10:
		p.play(refreshFar("b"+channel, claim, p.draw(4)/2, p.pick().hold, p.pick().hold))
	case 11:
		p.play(releaseAll(p.pick().hold, ttl))
	case 12:
		p.playQuorum()
	case 13, 14:
		p.play(tryAcquire(p.conversion()))
	case 15:
		p.play(queueing(p.conversion()))
	default:
		p.play(release(p.pick().hold, []int{0, 0, 0, ttl}[p.draw(4)]))
	}
}

func (p *player) playQuorum() {
	r := p.pick()
	token := p.tokens[ulid(r.hold)]
	if !p.m.quorum {
		return
	}
	switch p.draw(4) {
	case 0:
		p.play(raise(r.hold, token+int64(p.draw(3))*900_000))
	case 1, 2:
		p.play(yield(r.hold, token))
	default:
		p.play(regain(r, max(token, 1), p.draw(2)))
	}
}
