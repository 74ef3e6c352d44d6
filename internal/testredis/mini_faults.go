package testredis

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// FlushAll empties the server.
func (m *Mini) FlushAll() { m.redis.FlushAll() }

// FlushScripts makes the server forget all scripts.
func (m *Mini) FlushScripts() { m.run("SCRIPT", "FLUSH") }

// Crash cuts all connections, refuses new ones, and loses all keys and scripts, until Recover. INFO shows another run
// id then, if it shows any.
func (m *Mini) Crash() {
	m.Stop()
	m.FlushAll()
	m.FlushScripts()
	if m.runID.Load() != nil {
		m.NewProcess()
	}
}

// NewProcess has INFO show a run id, another one with each call, also inside scripts: to clients the server is another
// process then. A server by itself shows none. Keys and scripts stay.
func (m *Mini) NewProcess() {
	id := fmt.Sprintf("%020x%020x", rand.Uint64(), rand.Uint64())
	if m.runID.Swap(&id) != nil {
		return
	}
	m.redis.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
		if cmd != "INFO" {
			return false
		}
		peer.WriteBulk("run_id:" + *m.runID.Load() + "\r\nrole:master\r\ncluster_enabled:0\r\n")
		return true
	})
}

// Stop is Crash without loss of keys and scripts, until Recover.
func (m *Mini) Stop() {
	m.mu.Lock()
	m.down = true
	m.mu.Unlock()
	for _, l := range m.Links() {
		l.Cut()
	}
}

// Recover accepts connections again.
func (m *Mini) Recover() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = false
}

// Freeze stops the server from reading commands, as SIGSTOP does: connections and dials succeed, and commands wait
// until Thaw, and then all run. Time continues.
func (m *Mini) Freeze() { m.setFrozen(true) }

// Thaw ends Freeze.
func (m *Mini) Thaw() { m.setFrozen(false) }

func (m *Mini) setFrozen(frozen bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = frozen
	for _, l := range m.links {
		l.set(func() { l.frozen = frozen })
	}
}

// Skew sets the server's wall clock d ahead of the bubble's, or behind it for a negative d. A step forward expires keys
// whose time it passes, as on a real server. A step backward lengthens no TTL.
func (m *Mini) Skew(d time.Duration) {
	m.mu.Lock()
	m.skew, m.skewed = d, true
	m.mu.Unlock()
	m.tick()
}

// tick moves a skewed server's clock, which stands still between commands, to the present. The clock is never left to
// follow the bubble by itself again, because that would count as one huge step.
func (m *Mini) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.skewed {
		m.redis.SetTime(time.Now().UTC().Add(m.skew))
	}
}

// run executes a command in the server without a connection.
func (m *Mini) run(args ...string) string {
	var reply bytes.Buffer
	w := bufio.NewWriter(&reply)
	m.redis.Server().Dispatch(server.NewPeer(w), args)
	_ = w.Flush()
	return reply.String()
}
