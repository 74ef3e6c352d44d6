package transport

import (
	"errors"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/wire"
)

// tuned is implemented by a client from rwlock.Dial. Such a client has one connection for calls to each server, and
// counts the connections that it has opened.
type tuned interface{ Dials() uint64 }

// dialler is also implemented by such a client. It returns the remote addresses of the newest connection and of the
// newest connection for calls, and a channel that is closed when a newer one is opened.
type dialler interface {
	LastDials() (newest, call string, next <-chan struct{})
}

// closer is what such a client tells of its end.
type closer interface{ Closed() bool }

// connections holds what a master's client reports of its connections, and the identity of the master that they lead
// to.
type connections struct {
	cfg      *Config
	tuned    tuned   // nil for a client that is not from rwlock.Dial
	dialler  dialler // the same
	closer   closer  // the same
	identity atomic.Pointer[identity]
}

// Dials returns how many connections the client has opened, 0 if the client does not count them.
func (c *connections) Dials() uint64 {
	if c.tuned == nil {
		return 0
	}
	return c.tuned.Dials()
}

// lastDials returns zero values if the client is no dialler.
func (c *connections) lastDials() (newest, call string, next <-chan struct{}) {
	if c.dialler == nil {
		return "", "", nil
	}
	return c.dialler.LastDials()
}

// identity is the vote with the id that the marker of one of several masters states, and the connection over which the
// marker was read.
type identity struct {
	dials uint64
	vote  wire.Vote // without a proposal
}

// SetIdentity stores the id from the marker, and the number of connections that had been opened before the marker was
// read.
func (c *connections) SetIdentity(id string, dials uint64) (changed bool) {
	now := &identity{dials, wire.Vote{
		Seen: id, Quarantine: wire.FormatMillis(c.cfg.Quarantine),
		Check: c.tuned == nil, // another server may answer at any time: each script checks its run id
	}}
	before := c.identity.Swap(now)
	return before == nil || *before != *now
}

// Disown makes this client a stranger to the master. dials is the number of connections that the client had opened when
// it read the marker.
func (c *connections) Disown(dials uint64) (changed bool) { return c.SetIdentity(wire.SeenNone, dials) }

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

// current returns a vote adjusted to the connections that are open now. A vote that was made for an earlier connection
// and has waited since becomes a vote of a client that has not seen the marker.
func (c *connections) current(vote wire.Vote, dials uint64) wire.Vote {
	id := c.identity.Load()
	if c.cfg.Quarantine > 0 && id.dials != dials && vote.Seen == id.vote.Seen {
		vote.Seen = wire.SeenNone
	}
	return vote
}

// errReconnected is the answer of one of several masters to a request that may have gone over a different connection
// than the one for which the caller's vote was made, and so to another server.
var errReconnected = errors.New("connection replaced during the request")

// errStaleMarker is the answer of one of several masters to a renewal by a client that has not read the master's
// current marker.
var errStaleMarker = errors.New("marker changed; reading it again")

// StaleMarker reports whether the marker of a master has to be read before the next request: either the request may
// have gone over a different connection than its vote was made for, or the master has refused it because of its marker.
func StaleMarker(err error) bool {
	return errors.Is(err, errReconnected) || errors.Is(err, errStaleMarker)
}

// sameConnection keeps the answer to a request if no connection has been opened since the request was sent.
func (c *connections) sameConnection(before uint64, r rueidis.RedisResult) rueidis.RedisResult {
	if c.cfg.Quarantine > 0 && r.NonRedisError() == nil && c.Dials() != before {
		return rueidis.NewErrorResult(errReconnected)
	}
	return r
}
