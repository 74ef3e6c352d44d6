package engine

import (
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

// Request is one acquisition as the caller wants it.
type Request struct {
	Name  string
	Mode  fencing.Mode
	Owner string // a ULID; "" stands for the id of the hold
	Entry Entry
	Terms *Terms
	Block int    // size of the token block that a shared write hold wants; 0 if the hold is not shared
	From  string // the hold that is converted to this one, or ""

	Seen    fencing.Token // the largest token of the lock that a shared hold of this process had, or 0
	Claimed fencing.Token // token of the hold that a Join is for; 0 for the owner's latest

	withdrawal *withdrawal // of a conversion of a shared hold
}

// Entry says how a request enters the lock.
type Entry = ballot.Entry

// The entries: wait in the queue; enter only if the lock is free; join the standing hold of the same owner; wait at the
// head of the queue until the remaining readers leave.
const (
	Wait    = ballot.Wait
	Try     = ballot.Try
	Join    = ballot.Join
	Upgrade = ballot.Upgrade
)

// Terms are the conditions of a lease. Requests share them, and they never change.
type Terms struct {
	TTL     time.Duration
	MaxWait time.Duration // 0: until the context ends
	MaxHold time.Duration // 0: without end
	Meta    string
	Renew   bool

	handoffTTL time.Duration // how long a waiter lives without a refresh, and a hand-off without a confirmation
	ttlArg     string        // the same as arguments of scripts
	handoffArg string
}

// maxHandoffTTL bounds the lease of a waiter, and the duration of a hand-off before its first renewal.
const maxHandoffTTL = 3 * time.Second

// refreshes is how many refreshes fit into a waiter's lease, so the waiter survives the loss of all but one of them.
const refreshes = 3

// Prepare computes once what every request under these terms needs.
func (t Terms) Prepare() *Terms {
	t.handoffTTL = min(t.TTL, maxHandoffTTL)
	t.ttlArg, t.handoffArg = millis(t.TTL), millis(t.handoffTTL)
	return &t
}

// refreshEvery returns the interval at which a waiter under these terms must be refreshed.
func (t *Terms) refreshEvery() time.Duration { return t.handoffTTL / refreshes }

// modeArg formats a mode as the scripts read it.
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
