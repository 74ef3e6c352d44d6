package engine

import (
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// hold is one attempt at a lock, as the masters know it. Thousands are held at once, so it has no more than a lease
// needs: what only asking needs is its acquisition's, and what few holds have is apart.
type hold struct {
	id    string // a ULID; each attempt has its own
	name  string // of the lock
	key   lockKey
	terms *Terms
	extra *extra        // nil for most
	begun time.Duration // the first attempt, by the monotonic clock
	mode  fencing.Mode
	phase phase

	untold bool // the hooks have not been told of the beginning
}

// extra is what few holds have.
type extra struct {
	owner      string        // a ULID that the caller named, or ""
	claimed    fencing.Token // of the hold that a Join is for, or 0
	cohort     cohort
	withdrawal *withdrawal // of a conversion of a cohort's hold to this one
}

// owner is a ULID. Whose caller names none has the hold's id: it can be joined by nobody.
func (h *hold) owner() string {
	if named := h.namedOwner(); named != "" {
		return named
	}
	return h.id
}

// namedOwner is "" where the caller has named none.
func (h *hold) namedOwner() string {
	if h.extra == nil {
		return ""
	}
	return h.extra.owner
}

// block is how many tokens it wants, of a cohort that shares it; 0 for all others.
func (h *hold) block() int {
	if h.extra == nil {
		return 0
	}
	return h.extra.cohort.block
}

// details are what a master keeps of it as it is: mode, hand-off TTL, owner ("-" where that is the hold itself, "+B"
// where it is a cohort's besides, and "^hold" behind it where that one is converted), where its process listens, meta.
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

// order is how a hold queues: by arrival where one master decides, and by hold id, which all masters order alike, where
// several do. Were each of several to queue by arrival, two contenders could stand before each other on different
// masters, and each would wait for the other to leave.
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
