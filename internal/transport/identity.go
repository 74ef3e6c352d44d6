package transport

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/wire"
)

// connections holds what a master's client reports of its connections, and the identity of the master that they lead
// to.
type connections struct {
	cfg      *Config
	tuned    connected // nil for a client that is not from Dial
	identity atomic.Pointer[identity]
	unread   atomic.Pointer[unread]
}

// Dials returns how many connections the client has opened, 0 if the client does not count them.
func (c *connections) Dials() uint64 {
	if c.tuned == nil {
		return 0
	}
	return c.tuned.Dials()
}

// lastDials returns zero values for a client that is not from Dial.
func (c *connections) lastDials() (newest, call string, next <-chan struct{}) {
	if c.tuned == nil {
		return "", "", nil
	}
	return c.tuned.LastDials()
}

// identity is the vote with the id that the marker of one of several masters states, and the connection over which the
// marker was read.
type identity struct {
	dials uint64
	vote  wire.Vote // without a proposal
}

// identify reports whether the id or the connection is another one than before.
func (c *connections) identify(id string, dials uint64) (changed bool) {
	now := &identity{dials, wire.Vote{
		Seen: id, Quarantine: wire.FormatMillis(c.cfg.Quarantine),
		Check: c.tuned == nil, // another server may answer at any time: each script checks its run id
	}}
	before := c.identity.Swap(now)
	return before == nil || *before != *now
}

// Identified reports whether the marker of the master has been read over the current connection. It is always true for
// a single master.
func (c *connections) Identified() bool {
	id := c.identity.Load()
	return c.cfg.Quarantine == 0 || id.dials == c.Dials() && id.vote.Seen != wire.SeenNone
}

// Vote returns the vote to send with a script. With several masters it contains the token floor, in microseconds. If
// the connection to a master was opened after the marker was read, the master does not vote until the marker has been
// read again.
func (c *connections) Vote(proposal int64) wire.Vote {
	if c.cfg.Quarantine == 0 {
		return wire.Vote{}
	}
	id := c.identity.Load()
	vote := id.vote
	vote.Proposal = proposal
	if id.dials != c.Dials() {
		vote.Seen = wire.SeenNone
	}
	return vote
}

// unread says until when calls wait for the marker after so many connections had been opened.
type unread struct {
	dials uint64
	until time.Duration
}

// untilRead returns for how long calls wait now, because the connection to one of several masters was opened after its
// marker was read: the master would refuse them. For each connection they wait once, within the node timeout.
func (c *connections) untilRead(now time.Duration) time.Duration {
	if c.cfg.Quarantine == 0 {
		return 0
	}
	dials := c.Dials()
	if c.identity.Load().dials == dials {
		return 0
	}
	wait := c.unread.Load()
	if wait == nil || wait.dials != dials {
		wait = &unread{dials, now + c.cfg.SlowCallAfter}
		c.unread.Store(wait)
	}
	return max(wait.until-now, 0)
}

// reconnected is the answer of one of several masters to a request that may have gone over a different connection than
// the one for which the caller's vote was made, and so to another server.
type reconnected struct{ reply rueidis.RedisResult }

func (*reconnected) Error() string { return "connection replaced during the request" }

// OfAnyServer returns the reply of the server that has run the request, whichever that is. A view may count it, and a
// release: that the connection is replaced just after a release leaves no other state.
func OfAnyServer(r rueidis.RedisResult) rueidis.RedisResult {
	if replaced, ok := r.NonRedisError().(*reconnected); ok {
		return replaced.reply
	}
	return r
}

// errStaleMarker is the answer of one of several masters to a renewal by a client that has not read the master's
// current marker.
var errStaleMarker = errors.New("marker changed; reading it again")

// StaleMarker reports whether the marker of a master has to be read before the next request: either the request may
// have gone over a different connection than its vote was made for, or the master has refused it because of its marker.
func StaleMarker(err error) bool {
	_, replaced := err.(*reconnected)
	return replaced || errors.Is(err, errStaleMarker)
}

// otherConnection reports whether an answer of one of several masters may have come over a connection that was opened
// since the request was sent.
func (c *connections) otherConnection(before uint64, r rueidis.RedisResult) bool {
	return c.cfg.Quarantine > 0 && r.NonRedisError() == nil && c.Dials() != before
}
