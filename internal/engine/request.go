package engine

import (
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

// Request is one acquisition as the caller wants it.
type Request struct {
	Name  string
	Mode  fencing.Mode
	Owner string // a ULID; "" takes the hold's own
	Entry Entry
	Terms *Terms
	Block int // tokens that a write wants, of a cohort that shares the hold; 0: it is no cohort's
}

// Entry says how a request gets in.
type Entry = ballot.Entry

// The ways in: wait in the queue, take it or leave it, join the standing hold of the same owner.
const (
	Wait = ballot.Wait
	Try  = ballot.Try
	Join = ballot.Join
)

// Terms are the conditions of a lease. They are shared by requests and never change.
type Terms struct {
	TTL     time.Duration
	MaxWait time.Duration // 0: until the context ends
	MaxHold time.Duration // 0: without end
	Meta    string
	Renew   bool

	handoffTTL time.Duration
	ttlArg     string
	handoffArg string
}

// maxHandoffTTL bounds a waiter's own lease and how long a hand-off lasts until its first renewal.
const maxHandoffTTL = 3 * time.Second

// refreshes is how many refreshes fit into a waiter's lease: it survives the loss of all but one of them.
const refreshes = 3

// Prepare computes once what every request under these terms needs.
func (t Terms) Prepare() *Terms {
	t.handoffTTL = min(t.TTL, maxHandoffTTL)
	t.ttlArg, t.handoffArg = millis(t.TTL), millis(t.handoffTTL)
	return &t
}

func (t *Terms) refreshEvery() time.Duration { return t.handoffTTL / refreshes }

// details is what a master keeps of a hold as it is: mode, hand-off TTL, owner ("-" where that is the hold itself, "+B"
// where it is a cohort's besides), where its process listens, meta.
func (l *Lease) details() string {
	owner := l.owner
	switch {
	case l.cohort.block > 0:
		owner = "+" + strconv.Itoa(l.cohort.block)
	case owner == l.hold:
		owner = "-"
	}
	return modeArg(l.mode) + " " + l.terms.handoffArg + " " + owner + " " + l.e.route() + " " + l.terms.Meta
}

// route is how messages reach this engine, as a hold's details name it: p and a channel where a message that nobody
// receives tells that nobody listens; b before this engine has listened to every master, so that its first waiters are
// not passed over for being early.
func (e *Engine) route() string {
	if e.listening.Load() {
		return "p" + e.channel
	}
	return "b" + e.channel
}

// proposalLead puts proposals ahead of the clocks of the masters, which a request reaches a little later: one without a
// counter takes its own clock if that is further on, and their different answers would have to be raised to one. Slow
// links add their round trip.
const proposalLead = 50 * time.Millisecond

// sawRoundTrip notes how long an answer took, if that is long, and forgets slow ones by and by.
func (e *Engine) sawRoundTrip(d time.Duration) {
	e.roundTrip.Store(max(int64(d), e.roundTrip.Load()*7/8))
}

// proposal is the floor of the tokens that a script mints, the same for all masters, so that their answers agree, and
// beyond every token that this engine has seen. A single master takes its own clock instead.
func (e *Engine) proposal() int64 {
	if len(e.masters) == 1 {
		return 0
	}
	return max(e.clock.Now().Wall.Add(proposalLead+time.Duration(e.roundTrip.Load())).UnixMicro(), int64(e.maxToken.Load())+1)
}

// order is how a hold queues: by arrival where one master decides, and by hold id, which all masters order alike, where
// several do.
func (l *Lease) order(entry Entry) string {
	switch {
	case entry != Wait:
		return "0"
	case len(l.e.masters) == 1:
		return "a"
	default:
		return "h"
	}
}

// acquireArgs fills the arguments of acquire.lua or join.lua, under mu.
func (a *acquisition) acquireArgs(vote string, into *[6]string) []string {
	l := a.lease
	if a.entry == Join {
		*into = [6]string{vote, l.hold, l.owner, modeArg(l.mode), l.terms.ttlArg, l.detail}
		return into[:]
	}
	*into = [6]string{vote, l.hold, l.terms.ttlArg, l.order(a.entry), l.detail}
	return into[:5]
}

func modeArg(m fencing.Mode) string {
	if m == fencing.Write {
		return "w"
	}
	return "r"
}

func readMode(s string) fencing.Mode {
	if s == "w" {
		return fencing.Write
	}
	return fencing.Read
}
