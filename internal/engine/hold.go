package engine

import (
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// hold is one attempt at a lock, as the masters know it.
type hold struct {
	id     string // a ULID; each attempt has its own
	name   string // of the lock
	mode   fencing.Mode
	owner  string // a ULID: the id where the caller named none
	terms  *Terms
	keys   keys
	route  string        // how messages about it reach this process
	detail string        // what a master keeps of it as it is
	begun  clock.Instant // the first attempt
	from   string        // the hold that is converted to this one, or ""
	block  int           // tokens that it wants, of a cohort that shares it; 0: it is no cohort's
}

// start makes it a new attempt. Each has the time of the first one in its id, so that it keeps its place in the queue.
// route is how messages reach this process.
func (h *hold) start(owner, route string) {
	h.id = newULID(h.begun.Wall)
	// Who names no owner is one of its own: it can be joined by nobody.
	if h.owner = owner; owner == "" {
		h.owner = h.id
	}
	h.route, h.detail = route, h.details(route)
}

// reroute takes over how messages reach this process now, for the requests to come.
func (h *hold) reroute(route string) {
	if route != h.route {
		h.route, h.detail = route, h.details(route)
	}
}

// restart makes it another attempt of the same owner.
func (h *hold) restart(route string) {
	owner := h.owner
	if owner == h.id {
		owner = ""
	}
	h.start(owner, route)
}

// details are mode, hand-off TTL, owner ("-" where that is the hold itself, "+B" where it is a cohort's besides, and
// "^hold" behind it where that one is converted), where its process listens, meta.
func (h *hold) details(route string) string {
	owner := h.owner
	switch {
	case h.block > 0:
		owner = "+" + strconv.Itoa(h.block)
	case owner == h.id:
		owner = "-"
	}
	if h.from != "" {
		owner += "^" + h.from
	}
	return modeArg(h.mode) + " " + h.terms.handoffArg + " " + owner + " " + route + " " + h.terms.Meta
}

// acquireArgs fills the arguments of acquire.lua. single says that one master decides.
func (h *hold) acquireArgs(vote string, entry Entry, single bool, into *[6]string) []string {
	*into = [6]string{vote, h.id, h.terms.ttlArg, order(entry, single), h.detail}
	return into[:5]
}

// joinArgs fills the arguments of join.lua.
func (h *hold) joinArgs(vote string, into *[6]string) []string {
	*into = [6]string{vote, h.id, h.owner, modeArg(h.mode), h.terms.ttlArg, h.detail}
	return into[:]
}

// order is how a hold queues: by arrival where one master decides, and by hold id, which all masters order alike, where
// several do.
func order(entry Entry, single bool) string {
	switch {
	case entry != Wait && entry != Upgrade:
		return "0"
	case single:
		return "a"
	default:
		return "h"
	}
}

// tokenArg and millis write arguments of scripts. A token is written in full: Lua's own conversion loses digits from
// 1e14 on.
func tokenArg(t fencing.Token) string { return strconv.FormatUint(uint64(t), 10) }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
