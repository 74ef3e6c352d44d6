package engine

import (
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// hold is one attempt at a lock, as the masters know it. Thousands are held at once, so it has only what a lease needs:
// fields that only asking needs are in acquisition, and fields that few holds need are in extra.
type hold struct {
	id    string // a ULID; each attempt has its own
	name  string // of the lock
	key   lockKey
	terms *Terms
	extra *extra        // nil for most
	begun time.Duration // start of the first attempt, by the monotonic clock
	mode  fencing.Mode
	phase phase

	untold bool // the hooks were not notified of the beginning
}

// extra has the fields that few holds need.
type extra struct {
	owner      string        // a ULID that the caller named, or ""
	claimed    fencing.Token // of the hold that a Join is for, or 0
	cohort     cohort
	withdrawal *withdrawal // of a conversion of a shared hold to this one
}

// owner returns the owner's ULID. If the caller named none, it is the hold's id, and no hold can join it.
func (h *hold) owner() string {
	if named := h.namedOwner(); named != "" {
		return named
	}
	return h.id
}

// namedOwner returns "" if the caller named no owner.
func (h *hold) namedOwner() string {
	if h.extra == nil {
		return ""
	}
	return h.extra.owner
}

// block returns how many tokens a shared hold asks for; 0 for all other holds.
func (h *hold) block() int {
	if h.extra == nil {
		return 0
	}
	return h.extra.cohort.block
}

// details returns what a master stores of the hold unchanged: mode, hand-off TTL, owner, route to its process, meta.
// The owner is "-" if it is the hold itself, "+B" if the hold is also shared and asks for B tokens, and is followed by
// "^hold" if that hold is converted.
func (h *hold) details(route, converts string) string {
	owner := "-"
	switch named := h.namedOwner(); {
	case h.block() > 0:
		owner = "+" + strconv.Itoa(h.block())
	case named != "":
		owner = named
	}
	if converts != "" {
		owner += "^" + converts
	}
	return modeArg(h.mode) + " " + h.terms.handoffArg + " " + owner + " " + route + " " + h.terms.Meta
}

// order returns how a hold queues: not at all, by arrival where one master decides, or by hold id, which all masters
// order alike, where several do. If several masters queued by arrival, two contenders could stand before each other on
// different masters, and each would wait for the other to leave.
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

// tokenArg and millis format arguments of scripts. A token is written in full: Lua's own conversion loses digits from
// 1e14 on.
func tokenArg(t fencing.Token) string { return strconv.FormatUint(uint64(t), 10) }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
