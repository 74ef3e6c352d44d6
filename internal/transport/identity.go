package transport

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/wire"
)

// connections holds what a master's client reports of its connections, and the identity of the master that they lead
// to.
type connections struct {
	connected
	cfg      *Config
	tuned    bool // the client counts its connections
	identity atomic.Pointer[identity]
	unread   atomic.Pointer[unread]
}

// uncounted is of a client that does not count its connections.
type uncounted struct{ closes bool }

func (uncounted) Dials() uint64 { return 0 }

func (uncounted) LastDials() (newest, call string, next <-chan struct{}) { return "", "", nil }

// Closed reports whether a connection that is closed says that the client was closed.
func (u uncounted) Closed() bool { return u.closes }

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
		Check: !c.tuned, // another server may answer at any time: each script checks its run id
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

// The answers of one of several masters after which its marker has to be read before the next request.
var (
	// The request may have gone over a different connection than its vote was made for, and so to another server.
	errReconnected = errors.New("connection replaced during the request")
	// A renewal by a client that has not read the current marker.
	errStaleMarker = errors.New("marker changed; reading it again")
)

// StaleMarker reports whether err is such an answer.
func StaleMarker(err error) bool {
	return errors.Is(err, errReconnected) || errors.Is(err, errStaleMarker)
}
