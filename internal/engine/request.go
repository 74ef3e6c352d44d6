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
	Owner string // a ULID; "" takes the hold's own
	Entry Entry
	Terms *Terms
	Block int    // tokens that a write wants, of a cohort that shares the hold; 0: it is no cohort's
	From  string // the hold that is converted to this one, or ""

	Seen    fencing.Token // the largest of the lock that a cohort has had, or 0
	Claimed fencing.Token // of the hold that a Join is for; 0: the owner's latest

	withdrawal *withdrawal // of a conversion of a cohort's hold
}

// Entry says how a request gets in.
type Entry = ballot.Entry

// The ways in: wait in the queue, take it or leave it, join the standing hold of the same owner, wait at the head of
// the queue for the other readers to leave.
const (
	Wait    = ballot.Wait
	Try     = ballot.Try
	Join    = ballot.Join
	Upgrade = ballot.Upgrade
)

// Terms are the conditions of a lease. They are shared by requests and never change.
type Terms struct {
	TTL     time.Duration
	MaxWait time.Duration // 0: until the context ends
	MaxHold time.Duration // 0: without end
	Meta    string
	Renew   bool

	handoffTTL time.Duration // how long a waiter lives without a refresh, and a hand-off until it is confirmed
	ttlArg     string        // the same as arguments of scripts
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

// refreshEvery is the interval at which a waiter under these terms has to be refreshed.
func (t *Terms) refreshEvery() time.Duration { return t.handoffTTL / refreshes }

// modeArg writes a mode as the scripts read it, and readMode reads it.
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
