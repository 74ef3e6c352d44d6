package transport

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// tuned is what a client from rwlock.Dial tells of itself: it has one connection for calls to each server, and has
// opened so many connections.
type tuned interface{ Dials() uint64 }

// dialler is what such a client tells beside that: the far ends of its newest connection and of the newest for calls,
// and a channel that is closed when there is a newer one.
type dialler interface {
	LastDials() (newest, call string, next <-chan struct{})
}

// prompt is what such a client can be told beside that: how long locks can wait for an answer. A connection that is
// silent for longer is replaced.
type prompt interface{ AnswerWithin(limit time.Duration) }

// connections are those of a master's client, as far as it tells of them, and who the master is that they lead to.
type connections struct {
	cfg      *Config
	tuned    tuned   // nil for a client that is not from rwlock.Dial
	dialler  dialler // the same
	prompt   prompt  // the same
	identity atomic.Pointer[identity]
}

// answerShare is the part of a TTL that an answer may take. A renewal is due after a third of the TTL. Where it goes
// out over a dead connection, five twelfths are left for a new connection and another try.
const answerShare = 4

// Serve tells the client how long a lease of this TTL can wait for an answer.
func (c *connections) Serve(ttl time.Duration) {
	if c.prompt != nil {
		c.prompt.AnswerWithin(ttl / answerShare)
	}
}

// Dials returns how many connections the client has opened, 0 where it does not tell.
func (c *connections) Dials() uint64 {
	if c.tuned == nil {
		return 0
	}
	return c.tuned.Dials()
}

// lastDials returns nothing where the client does not tell.
func (c *connections) lastDials() (newest, call string, next <-chan struct{}) {
	if c.dialler == nil {
		return "", "", nil
	}
	return c.dialler.LastDials()
}

// identity is what the marker of one of several masters says that it is, and over which connection that was read.
type identity struct {
	dials          uint64
	tail, stranger string
}

// unknown is the id of a master whose marker has not been read over this connection. No marker has it.
const unknown = "?"

// SetIdentity notes what the marker says, and how many connections had been opened before it was read.
func (c *connections) SetIdentity(id string, dials uint64) (changed bool) {
	rest := " " + strconv.FormatInt(c.cfg.Quarantine.Milliseconds(), 10) + " 0"
	if c.tuned == nil {
		rest = rest[:len(rest)-1] + "1" // another server may answer at any time: each script looks at its run id
	}
	now := &identity{dials, " " + id + rest, " " + unknown + rest}
	before := c.identity.Swap(now)
	return before == nil || *before != *now
}

// Vote returns the first argument of every script that changes a lock: with the floor of new tokens, in microseconds,
// where several masters decide. A master that is reached over another connection than its marker was does not vote
// before that has been read again.
func (c *connections) Vote(proposal int64) string {
	if c.cfg.Quarantine == 0 {
		return "0"
	}
	id := c.identity.Load()
	if id.dials != c.Dials() {
		return strconv.FormatInt(proposal, 10) + id.stranger
	}
	return strconv.FormatInt(proposal, 10) + id.tail
}

// current returns the arguments of a script as they are to go out over the connections that stand: a vote that was made
// for the connection before, and has waited since, becomes a stranger's.
func (c *connections) current(args []string, dials uint64) []string {
	id := c.identity.Load()
	if c.cfg.Quarantine == 0 || id.dials == dials || len(args) == 0 {
		return args
	}
	proposal, known := strings.CutSuffix(args[0], id.tail)
	if !known {
		return args
	}
	args = slices.Clone(args)
	args[0] = proposal + id.stranger
	return args
}

// errReconnected is the answer of one of several masters to a request that may have gone over another connection than
// the caller's vote was made for, and so to another server.
var errReconnected = errors.New("the connection was replaced while the request was on its way")

// errUnread is the answer of one of several masters to a renewal by a client that has not read the marker which the
// master has now.
var errUnread = errors.New("its marker has changed, and is being looked at")

// Unread reports whether the marker of a master has to be read before it is asked again: the request may have gone over
// another connection than its vote was made for, or the master has refused it for its marker.
func Unread(err error) bool { return errors.Is(err, errReconnected) || errors.Is(err, errUnread) }

// sameConnection keeps the answer to a request if no connection has been opened since.
func (c *connections) sameConnection(before uint64, r rueidis.RedisResult) rueidis.RedisResult {
	if c.cfg.Quarantine > 0 && r.NonRedisError() == nil && c.Dials() != before {
		return rueidis.NewErrorResult(errReconnected)
	}
	return r
}
