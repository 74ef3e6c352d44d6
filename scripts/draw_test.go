package scripts_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
