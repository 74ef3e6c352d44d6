package scriptfuzz

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// member is a release or an acquire in a call of group.lua.
type member struct {
	release  bool
	inSet    bool
	order    string // of an acquire: "a" if it queues by arrival, else "0"
	hold     hold
	life     int64
	proposal int64 // of an acquire, where there are several masters
}

// released is the line of a release, and passed matches that of what a set does not take for the sake of another lock.
const released = "1 0 0"

var passed = regexp.MustCompile(`^2 0 0 \d+ - 0 0 -$`)

// group draws a group: releases of what holds or waits, and an acquire. The order of a set is what of it runs.
func (g *generator) group() step {
	s := g.fresh(scripts.Acquire)
	s.Do, s.Mode, s.Order, s.Owner, s.Block = string(scripts.Group), "w", "", "", 0
	if s.Others = g.some(2); g.one(3) {
		s.Others = nil
	} else if g.one(3) {
		s.Hold = 0
	}
	s.Vote = g.vote()
	if s.Hold == 0 {
		return s
	}
	if s.Order = pick(g, "", "a"); s.Others == nil {
		s.Order = pick(g, "", "a", "none", "before")
	}
	g.asked[s.Hold] = s
	g.order = append(g.order, s.Hold)
	if g.one(3) { // the lock is free, and then it is handed from member to member
		again := s
		again.Hold, again.Others, again.Order = g.fresh(scripts.Acquire).Hold, []int{s.Hold}, ""
		g.asked[again.Hold] = again
		g.order = append(g.order, again.Hold)
		g.next = append(g.next, step{Do: string(scripts.Refresh), Vote: g.vote()}, s, again)
		return step{Do: doJump, Us: 1000 * slices.Max(ttls)}
	}
	return s
}

// runGroup runs a group of calls for the one lock.
func runGroup(p *Player, s step, vote string) ([]any, error) {
	h := s.asHold()
	runs := fmt.Sprint(len(s.Others), s.Order)
	if isSet(s.Order) {
		runs = s.Order
	}
	keys, args := []string{}, []any{vote, runs, h.details()}
	for _, one := range members(p, s) {
		asks := one.hold.id
		if !one.release {
			asks = one.hold.request(one.life)
		}
		keys, args = append(keys, lockKey), append(args, asks)
	}
	if p.m.several {
		_, seen, _ := strings.Cut(vote, " ")
		keys, args[0] = append(keys, markerKey), fmt.Sprintf("%016d %s", 0, seen)
		if s.Hold > 0 {
			args = append(args, fmt.Sprintf("%016d", p.us+s.Vote.Ahead))
		}
	}
	got, err := p.send(scripts.Group, keys, args)
	if err == nil {
		err = checkSet(fmt.Sprint(args[1]), got)
	}
	return got, err
}

// members returns what a step of a group does: it releases holds, and then acquires one.
func members(p *Player, s step) (all []member) {
	for _, id := range holdIDs(s.Others) {
		all = append(all, member{release: true, hold: hold{id: id}})
	}
	if s.Hold > 0 {
		acquire := member{hold: s.asHold(), life: s.TTL, inSet: isSet(s.Order), order: orderOf(fmt.Sprint(0, s.Order))}
		if p.m.several {
			acquire.proposal = p.us + s.Vote.Ahead
		}
		all = append(all, acquire)
	}
	return all
}

// checkSet returns an error if a set answers what does not fit the refusal of its first lock that another writer has. A
// group that is no set refuses nothing.
func checkSet(runs string, got []any) error {
	held := slices.IndexFunc(got, func(text any) bool { return isCode(text, "2") && !isPassed(text) })
	for i, text := range got {
		mayRun := held < 0 || runs == "before" && i < held || !isSet(runs)
		if mayRun && isPassed(text) || !mayRun && isCode(text, "1") || i != held && isCode(text, "2") && !isPassed(text) {
			return fmt.Errorf("a set that runs %q answers %q", runs, got)
		}
	}
	return nil
}

// orderOf returns how the acquires of a group that runs this queue.
func orderOf(runs string) string {
	if strings.HasSuffix(runs, "a") {
		return "a"
	}
	return "0"
}

func isSet(runs string) bool { return runs == "none" || runs == "before" }

func isCode(text any, code string) bool {
	line := fmt.Sprint(text)
	return strings.HasPrefix(line, code+" ") || strings.HasPrefix(line, code) && behind.MatchString(line)
}

func isPassed(text any) bool { return passed.MatchString(fmt.Sprint(text)) }

// InFull returns the reply to a call with the line for which a short one stands: the time of a grant, or its token, the
// time and the first token of its block; and 1 of a release.
func InFull(name scripts.Name, args []string, reply any) any {
	switch members, isList := reply.([]any); {
	case name == scripts.Group && isList:
		for i, member := range members {
			if member == int64(1) {
				members[i] = released
			} else {
				members[i] = grantInFull(args[3+i], member)
			}
		}
	case name == scripts.Acquire:
		return grantInFull(args[0], reply)
	case name == scripts.Release && reply == int64(1):
		return released
	}
	return reply
}

// grantInFull returns the reply to an acquire, with the TTL of its request in a grant.
func grantInFull(request string, reply any) any {
	switch got := reply.(type) {
	case int64:
		return fmt.Sprintf("1 %d %d %d", got, lifeIn(request), got)
	case string:
		if part := strings.Fields(got); len(part) > 1 && len(part[0]) == 16 {
			return strings.Join(append([]string{"1", part[0], fmt.Sprint(lifeIn(request))}, part[1:]...), " ")
		}
	}
	return reply
}
