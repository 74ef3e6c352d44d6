// Package tokens estimates the clocks of the masters, and derives from them what their answers have to agree on: the
// token floor, from which scripts mint tokens, and the time in the ids of holds. It sends nothing.
//
// Three masters show 10.0, 10.1 and 14.0 s, say. A client proposes the token 10,150,000 to all of them. The first two
// mint it, so the lock is granted in one round trip. The third mints its own clock, and does not count.
package tokens

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Floor proposes token floors. A single master uses its own clock as the floor, needs no agreement, and orders holds by
// their arrival.
type Floor struct {
	clock     clock.Clock
	estimate  Estimate
	masters   int
	largest   atomic.Uint64 // the largest token seen, except tokens of shared holds
	roundTrip atomic.Int64  // the longest recent one, in ns
	ahead     atomic.Int64  // how far the masters' clocks are ahead of this process's own, in ns; see Ahead
}

// Estimate returns the time, in microseconds, that a master's clock shows when a request that is sent now reaches it,
// and whether the master fails.
type Estimate func(master int, now clock.Instant) (micros int64, known, failing bool)

// New returns the Floor of so many masters.
func New(c clock.Clock, masters int, estimate Estimate) *Floor {
	return &Floor{clock: c, estimate: estimate, masters: masters}
}

// proposalLead puts proposals ahead of the masters' clocks, because a request arrives a little later. A master without
// a counter uses its own clock if that is further ahead, and then the masters' answers differ and have to be raised to
// one token. On slow links the round trip is added.
const proposalLead = 50 * time.Millisecond

// AllowedLead is how far a token may be ahead of a master's clock, as in vote.lua and raise.lua. Beyond that, each of
// several masters cuts the token off by its own clock, so that their answers do not agree and cannot be raised to one
// token either. tokenLead bounds proposals and token blocks. The difference between the two covers the uncertainty
// about the clocks.
const (
	AllowedLead = time.Second
	tokenLead   = 800 * time.Millisecond
)

// blockMin tokens are always allowed in a block, so that a request serves several goroutines. They last for 16 us of
// the clock, which is less than the round trip of the next request, so such blocks never run ahead.
const blockMin = 16

// Budget returns how many of n tokens a block may have now, for a lock with the largest known token seen.
func (f *Floor) Budget(n int, seen fencing.Token) int {
	if f.masters == 1 || n == 0 {
		return n
	}
	_, most := f.bounds()
	return int(min(int64(n), max(most-f.ProposalAfter(seen), blockMin)))
}

// bounds returns the least and the most that a proposal should be, in microseconds, so that a quorum mints it. A master
// mints a proposal that its counter, or without one its clock, has not passed, and that is at most a second ahead of
// that clock.
//
// The quorum with the clocks closest to each other decides. Three masters show 10.0, 10.1 and 14.0 s, say: the first
// two do. most is what all of the quorum permit, 10.8 s; least is ahead of their clocks, and of further ones that most
// permits: 10.15 s. Where clocks are too far apart, least is most: masters further ahead mint their clocks, and those
// behind are raised. This process's own clock is used only if no master's is known.
func (f *Floor) bounds() (least, most int64) {
	var array [9]int64
	clocks := f.serverClocks(array[:0])
	slices.Sort(clocks)
	quorum := min(f.masters/2+1, len(clocks))
	lead := (proposalLead + f.RoundTrip()).Microseconds()
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
func (f *Floor) serverClocks(clocks []int64) []int64 {
	now := f.clock.Now()
	for _, all := range []bool{false, true} {
		clocks = clocks[:0]
		for i := range f.masters {
			if micros, known, failing := f.estimate(i, now); known && (all || !failing) {
				clocks = append(clocks, micros)
			}
		}
		if len(clocks) > f.masters/2 {
			return clocks
		}
	}
	if len(clocks) == 0 {
		clocks = append(clocks, now.Wall.Microseconds())
	}
	return clocks
}

// RoundTrip returns the longest recent time from a request to its answer.
func (f *Floor) RoundTrip() time.Duration { return time.Duration(f.roundTrip.Load()) }

// Answered notes how long an answer took. Earlier long times decay.
func (f *Floor) Answered(took time.Duration) {
	f.roundTrip.Store(max(int64(min(took, time.Second/2)), f.roundTrip.Load()*7/8))
}

// Observe records a token, so that the next proposal is beyond it, which saves raises. The tokens of a shared hold run
// ahead of the clock. They are recorded with their lock only: else the blocks of one lock would leave no room for the
// blocks of the next.
func (f *Floor) Observe(token fencing.Token) {
	for {
		seen := f.largest.Load()
		if uint64(token) <= seen || f.largest.CompareAndSwap(seen, uint64(token)) {
			return
		}
	}
}

// Proposal returns the token floor that is sent to all masters. It is the same for all of them, so that their answers
// agree, and larger than every token that was observed, unless those tokens are too far ahead.
//
// The proposal serves agreement and not safety. A proposal behind the masters' clocks is too small (case floor-no-end),
// and a proposal far ahead is too large (case floor-no-cap). A master therefore uses the end of its last quarantine if
// that is larger, and never more than a second beyond its own clock.
func (f *Floor) Proposal() int64 {
	if f.masters == 1 {
		return 0
	}
	least, most := f.bounds()
	return min(max(least, int64(f.largest.Load())+1), most)
}

// ProposalAfter returns the proposal for a lock with the largest known token seen. It is always larger than seen,
// because a master that missed that grant would mint a smaller token than the masters that have it.
func (f *Floor) ProposalAfter(seen fencing.Token) int64 {
	if f.masters == 1 {
		return 0
	}
	return max(f.Proposal(), int64(seen)+1)
}

// Reach returns an estimate of the largest token to which the master permits a raise now. It returns fencing.MaxToken
// if the master's clock is not known.
func (f *Floor) Reach(master int) fencing.Token {
	micros, known, _ := f.estimate(master, f.clock.Now())
	if !known {
		return fencing.MaxToken
	}
	return fencing.Token(micros + AllowedLead.Microseconds())
}

// Ahead returns how far the masters' clocks are ahead of this process's own, for the time in the ids of holds. Several
// masters queue by these ids, so a client with a clock that is a minute ahead would wait a minute longer. All clients
// follow the clock in the middle, or the earlier one of two.
//
// A difference within the uncertainty of the estimate changes nothing: clocks that are set by NTP order holds better
// than the estimate, and holds of one process keep their order. After a suspension of the machine the estimate is too
// small until the next answer. A hold of that time is before older ones, which is unfair and not unsafe.
func (f *Floor) Ahead() time.Duration {
	ahead := time.Duration(f.ahead.Load())
	var array [9]int64
	if clocks := f.serverClocks(array[:0]); len(clocks) > f.masters/2 {
		slices.Sort(clocks)
		now := time.Duration(clocks[(len(clocks)-1)/2]) * time.Microsecond
		estimate := now - f.clock.Now().Wall
		if (estimate - ahead).Abs() > proposalLead+f.RoundTrip() {
			ahead = estimate
			f.ahead.Store(int64(ahead))
		}
	}
	return ahead
}
