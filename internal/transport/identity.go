package transport

import (
	"slices"
	"strconv"
	"strings"
)

// tuned is what a client from rwlock.Dial tells of itself: it has one connection for calls to each server, and has
// opened so many connections.
type tuned interface{ Dials() uint64 }

// dialler is what such a client tells beside that: the far ends of its newest connection and of the newest for calls,
// and a channel that is closed when there is a newer one.
type dialler interface {
	LastDials() (newest, call string, next <-chan struct{})
}

// Dials returns how many connections the client has opened, 0 where it does not tell.
func (m *Master) Dials() uint64 {
	if m.tuned == nil {
		return 0
	}
	return m.tuned.Dials()
}

// lastDials returns nothing where the client does not tell.
func (m *Master) lastDials() (newest, call string, next <-chan struct{}) {
	if m.dialler == nil {
		return "", "", nil
	}
	return m.dialler.LastDials()
}

// identity is what the marker of one of several masters says that it is, and over which connection that was read.
type identity struct {
	dials          uint64
	tail, stranger string
}

// unknown is the id of a master whose marker has not been read over this connection. No marker has it.
const unknown = "?"

// SetIdentity notes what the marker says, and how many connections had been opened before it was read.
func (m *Master) SetIdentity(id string, dials uint64) (changed bool) {
	rest := " " + strconv.FormatInt(m.cfg.Quarantine.Milliseconds(), 10) + " 0"
	if m.tuned == nil {
		rest = rest[:len(rest)-1] + "1" // another server may answer at any time: each script looks at its run id
	}
	now := &identity{dials, " " + id + rest, " " + unknown + rest}
	before := m.identity.Swap(now)
	return before == nil || *before != *now
}

// Vote returns the first argument of every script that changes a lock: with the floor of new tokens, in microseconds,
// where several masters decide. A master that is reached over another connection than its marker was does not vote
// before that has been read again.
func (m *Master) Vote(proposal int64) string {
	if m.cfg.Quarantine == 0 {
		return "0"
	}
	id := m.identity.Load()
	if id.dials != m.Dials() {
		return strconv.FormatInt(proposal, 10) + id.stranger
	}
	return strconv.FormatInt(proposal, 10) + id.tail
}

// current returns the arguments of a script as they are to go out over the connections that stand: a vote that was made
// for the connection before, and has waited since, becomes a stranger's.
func (m *Master) current(args []string, dials uint64) []string {
	id := m.identity.Load()
	if m.cfg.Quarantine == 0 || id.dials == dials || len(args) == 0 {
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
