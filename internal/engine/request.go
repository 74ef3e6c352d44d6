package engine

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

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

	// TokenInUse returns the token of the block that goroutines of the process use now, or 0; nil if the hold is not
	// shared. It is called under the lease's mutex and must not block.
	TokenInUse func() fencing.Token

	adopts     wire.Adoption // of From, if another process has detached it
	firstGrant time.Duration // of the hold that is converted, where it has a minimum
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
	MinHold time.Duration // 0: a release frees the lock
	Meta    string
	Renew   bool

	BackgroundRelease bool // Release does not wait for the masters

	handoffTTL time.Duration // how long a waiter lives without a refresh, and a hand-off without a confirmation
	ttlArg     wire.Millis   // the same as arguments of scripts
	handoffArg wire.Millis
}

// Prepare computes once what every request under these terms needs.
func (t Terms) Prepare() *Terms {
	t.handoffTTL = min(t.TTL, maxHandoffTTL)
	t.ttlArg, t.handoffArg = wire.FormatMillis(t.TTL), wire.FormatMillis(t.handoffTTL)
	return &t
}

// maxHandoffTTL bounds the lease of a waiter, and the duration of a hand-off before its first renewal.
const maxHandoffTTL = 3 * time.Second

// query is a posted request for one hold to one master. It never changes, because its answer may come late.
type query struct {
	a  *acquisition
	m  *transport.Master
	id string
}

func (q *query) Receive(r rueidis.RedisResult, sent clock.Instant) { q.a.answered(q.m, q.id, r, sent) }

// Repeats reports whether the hold is still asked for. The answer to the repeated request does not cover what the first
// one has written.
func (q *query) Repeats() bool {
	h := q.a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if q.id != h.id || h.phase != asking {
		return false
	}
	q.a.sending(q.m)
	h.ballot.Vote(q.m.Index).Unknown = true // a release may overtake the repeated request, and finds no hold
	return true
}
