package transport

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"
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

// identity is the id that the marker of one of several masters states, and the connection over which it was read.
type identity struct {
	dials                uint64
	verified, unverified string
}

// unknownID is the id of a master whose marker has not been read over the current connection. No marker has this id.
const unknownID = "?"

// SetIdentity stores the id from the marker, and the number of connections that had been opened before the marker was
// read.
func (c *connections) SetIdentity(id string, dials uint64) (changed bool) {
	rest := " " + strconv.FormatInt(c.cfg.Quarantine.Milliseconds(), 10) + " 0"
	if c.tuned == nil {
		rest = rest[:len(rest)-1] + "1" // another server may answer at any time: each script checks its run id
	}
	now := &identity{dials, " " + id + rest, " " + unknownID + rest}
	before := c.identity.Swap(now)
	return before == nil || *before != *now
}

// Disown makes this client a stranger to the master. dials is the number of connections that the client had opened when
// it read the marker.
func (c *connections) Disown(dials uint64) (changed bool) { return c.SetIdentity(unknownID, dials) }

// Identified reports whether the marker of the master has been read over the current connection. It is always true for
// a single master.
func (c *connections) Identified() bool {
	id := c.identity.Load()
	return c.cfg.Quarantine == 0 || id.dials == c.Dials() && id.verified != id.unverified
}

// Vote returns the first argument of every script that changes a lock. With several masters it contains the token
// floor, in microseconds. If the connection to a master was opened after the marker was read, the master does not vote
// until the marker has been read again.
func (c *connections) Vote(proposal int64) string {
	if c.cfg.Quarantine == 0 {
		return "0"
	}
	id := c.identity.Load()
	if id.dials != c.Dials() {
		return strconv.FormatInt(proposal, 10) + id.unverified
	}
	return strconv.FormatInt(proposal, 10) + id.verified
}

// current returns the arguments of a script adjusted to the connections that are open now. A vote that was made for an
// earlier connection and has waited since becomes a vote with the unknown id.
func (c *connections) current(args []string, dials uint64) []string {
	id := c.identity.Load()
	if c.cfg.Quarantine == 0 || id.dials == dials || len(args) == 0 {
		return args
	}
	proposal, known := strings.CutSuffix(args[0], id.verified)
	if !known {
		return args
	}
	args = slices.Clone(args)
	args[0] = proposal + id.unverified
	return args
}

// errReconnected is the answer of one of several masters to a request that may have gone over a different connection
// than the one for which the caller's vote was made, and so to another server.
var errReconnected = errors.New("the connection was replaced while the request was on its way")

// errUnread is the answer of one of several masters to a renewal by a client that has not read the master's current
// marker.
var errUnread = errors.New("its marker has changed, and is being looked at")

// Unread reports whether the marker of a master has to be read before the next request: either the request may have
// gone over a different connection than its vote was made for, or the master has refused it because of its marker.
func Unread(err error) bool { return errors.Is(err, errReconnected) || errors.Is(err, errUnread) }

// sameConnection keeps the answer to a request if no connection has been opened since the request was sent.
func (c *connections) sameConnection(before uint64, r rueidis.RedisResult) rueidis.RedisResult {
	if c.cfg.Quarantine > 0 && r.NonRedisError() == nil && c.Dials() != before {
		return rueidis.NewErrorResult(errReconnected)
	}
	return r
}
