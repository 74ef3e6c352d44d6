package engine

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// tokens proposes the token floor, from which scripts mint tokens.
type tokens struct {
	clock     clock.Clock
	masters   []*transport.Master // a single master uses its own clock instead
	marker    string              // a key that every master has
	largest   atomic.Uint64       // the largest token seen, except tokens of shared holds
	roundTrip atomic.Int64        // the longest recent one, in ns
}

// proposalLead puts proposals ahead of the masters' clocks, because a request arrives a little later. A master without
// a counter uses its own clock if that is further ahead, and then the masters' answers differ and have to be raised to
// one token. On slow links the round trip is added.
const proposalLead = 50 * time.Millisecond

// tokenLead bounds how far proposals and token blocks run ahead of the masters' clocks. It is less than allowedLead,
// which a master permits. Beyond that, each of several masters cuts the token off by its own clock, so that their
// answers do not agree and cannot be raised to one token either. The difference between the two covers the uncertainty
// about the clocks.
const (
	tokenLead   = 800 * time.Millisecond
	allowedLead = time.Second // as in vote.lua and raise.lua
)

// blockMin is the size that a block may always have, so that a process does not need a new request for each of its
// goroutines. A block of that size is used in 16 us, which is less than the round trip to get it, so such blocks do not
// run ahead.
const blockMin = 16

// budget returns how many of n tokens a block may have now, for a lock with the largest known token seen. A single
// master needs no agreement.
func (t *tokens) budget(n int, seen fencing.Token) int {
	if len(t.masters) == 1 || n == 0 {
		return n
	}
	_, most := t.bounds()
	return int(min(int64(n), max(most-t.proposalAfter(seen), blockMin)))
}

// bounds returns the least and the most that a proposal should be, in microseconds, so that a quorum can mint it. This
// process's own clock, which may be ahead or behind, is used only if no master's clock is known.
//
// A master mints the proposal itself if it is not behind the master's counter, or its clock if it has no counter, and
// not too far ahead of its clock. The quorum whose clocks are closest to each other decides: most is what all of it
// permits, and least is ahead of its clocks, and of those other clocks that this permits. Where least would be more
// than most, it is most: the masters that are further ahead mint their clocks, and those behind are raised.
func (t *tokens) bounds() (least, most int64) {
	var array [9]int64
	clocks := t.serverClocks(array[:0])
	slices.Sort(clocks)
	quorum := min(len(t.masters)/2+1, len(clocks))
	lead := (proposalLead + t.longestRoundTrip()).Microseconds()
	closest := int64(math.MaxInt64)
	for i, furthest := range clocks[quorum-1:] {
		if apart := furthest - clocks[i]; apart < closest {
			closest, most = apart, clocks[i]+tokenLead.Microseconds()
			least = min(furthest+lead, most)
		}
	}
	for _, micros := range clocks {
		if micros+lead <= most {
			least = max(least, micros+lead)
		}
	}
	return least, most
}

// serverClocks appends estimates of the masters' clocks, in microseconds. A master that does not answer will not vote,
// so its clock counts only if fewer than a quorum answer.
func (t *tokens) serverClocks(clocks []int64) []int64 {
	now := t.clock.Now()
	for _, all := range []bool{false, true} {
		clocks = clocks[:0]
		for _, m := range t.masters {
			micros, known := m.EstimateServerTime(t.marker, now)
			if known && (all || !m.At(t.marker).Failing()) {
				clocks = append(clocks, micros)
			}
		}
		if len(clocks) > len(t.masters)/2 {
			return clocks
		}
	}
	if len(clocks) == 0 {
		clocks = append(clocks, now.Wall.Microseconds())
	}
	return clocks
}

// observe records a token, so that the next proposal is beyond it. Another process may have seen later tokens, so this
// guarantees nothing. It saves raises. The tokens of a shared hold run ahead of the clock and are recorded with its
// lock only (Request.Seen), because the blocks of one lock would otherwise leave no room for the blocks of other locks.
func (t *tokens) observe(token fencing.Token) {
	for {
		seen := t.largest.Load()
		if uint64(token) <= seen || t.largest.CompareAndSwap(seen, uint64(token)) {
			return
		}
	}
}

// longestRoundTrip returns the longest recent round trip.
func (t *tokens) longestRoundTrip() time.Duration { return time.Duration(t.roundTrip.Load()) }

// proposal returns the token floor that is sent to all masters. It is the same for all of them, so that their answers
// agree, and larger than every token that this engine has seen, unless those tokens are too far ahead. A single master
// uses its own clock instead.
//
// The proposal serves agreement and not safety. A proposal behind the masters' clocks is too small (case floor-no-end),
// and a proposal far ahead is too large (case floor-no-cap). A master therefore uses the end of its last quarantine if
// that is larger, and never more than a second beyond its own clock.
func (t *tokens) proposal() int64 {
	if len(t.masters) == 1 {
		return 0
	}
	least, most := t.bounds()
	return min(max(least, int64(t.largest.Load())+1), most)
}

// proposalAfter returns the proposal for a lock with the largest known token seen. It is always larger than seen,
// because a master that missed that grant would mint a smaller token than the masters that have it.
func (t *tokens) proposalAfter(seen fencing.Token) int64 {
	if len(t.masters) == 1 {
		return 0
	}
	return max(t.proposal(), int64(seen)+1)
}

// reach returns an estimate of the largest token to which the master permits a raise now. It returns fencing.MaxToken
// if the master's clock is not known.
func (t *tokens) reach(master int) fencing.Token {
	micros, known := t.masters[master].EstimateServerTime(t.marker, t.clock.Now())
	if !known {
		return fencing.MaxToken
	}
	return fencing.Token(micros + allowedLead.Microseconds())
}
