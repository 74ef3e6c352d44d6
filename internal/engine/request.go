package engine

import (
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Request is one acquisition as the caller wants it.
type Request struct {
	Name  string
	Mode  fencing.Mode
	Owner string // a ULID; "" takes the hold's own
	Entry Entry
	Terms *Terms
}

// Entry says how a request gets in.
type Entry uint8

// The ways in: wait in the queue, take it or leave it, join the standing hold of the same owner.
const (
	Wait Entry = iota
	Try
	Join
)

// Terms are the conditions of a lease. They are shared by requests and never change.
type Terms struct {
	TTL     time.Duration
	MaxWait time.Duration // 0: until the context ends
	MaxHold time.Duration // 0: without end
	Meta    string
	Renew   bool

	claim            time.Duration
	ttlArg, claimArg string
}

// claimMax bounds a waiter's own lease and, by that, how long a dead waiter can hold up the queue.
const claimMax = 3 * time.Second

// refreshes is how many refreshes fit into a waiter's lease: it survives the loss of all but one of them, and hears of
// any other's expiry before it happens.
const refreshes = 3

// Prepare computes once what every request under these terms needs.
func (t Terms) Prepare() *Terms {
	t.claim = min(t.TTL, claimMax)
	t.ttlArg, t.claimArg = millis(t.TTL), millis(t.claim)
	return &t
}

func (t *Terms) refreshEvery() time.Duration { return t.claim / refreshes }

// lead puts proposals ahead of the clocks of the masters, that a request reaches a little later: one without a counter
// takes its own clock if that is further on, and their different answers would have to be raised to one.
const lead = 50 * time.Millisecond

// proposal is the first argument of every script: the floor of the tokens that it mints, the same for all masters, so
// that their answers agree, and beyond every token that this engine has seen. One master takes its own clock instead.
func (e *Engine) proposal(now instant) string {
	if len(e.masters) == 1 {
		return "0"
	}
	floor := max(now.wall.Add(lead).UnixMicro(), int64(e.seen.Load())+1)
	return strconv.FormatInt(floor, 10) + " " + e.quarantine + " 0"
}

func (e *Engine) args(now instant, more ...string) []string {
	return append(append(make([]string, 0, 2+len(more)), e.proposal(now), e.tokenTTL), more...)
}

// acquireArgs fills the arguments of acquire.lua or join.lua into an array of the caller's, with floor as the proposal.
// Under mu.
func (l *Lease) acquireArgs(floor string, into *[10]string) []string {
	t := l.terms
	*into = [10]string{
		floor, l.e.tokenTTL, l.hold, l.owner, modeArg(l.mode), l.e.client, t.ttlArg, t.claimArg, l.order(), t.Meta,
	}
	if l.entry == Join {
		into[8] = t.Meta
		return into[:9]
	}
	return into[:]
}

// order is how this hold queues: by arrival where one master decides, and by hold id, which all masters order alike,
// where several do.
func (l *Lease) order() string {
	switch {
	case l.entry != Wait:
		return "0"
	case len(l.e.masters) == 1:
		return "a"
	default:
		return "h"
	}
}

func (l *Lease) program() *program {
	if l.entry == Join {
		return l.e.programs.join
	}
	return l.e.programs.acquire
}
