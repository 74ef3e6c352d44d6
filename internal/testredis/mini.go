package testredis

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
)

// Mini is an in-process server for a testing/synctest bubble: it has no listener, and TTLs and TIME follow the bubble's
// clock. It must be made inside the bubble, as must everything that uses it. It also works outside of bubbles, in real
// time.
type Mini struct {
	t      testing.TB
	addr   string
	redis  *miniredis.Miniredis
	mu     sync.Mutex
	links  []*Link
	down   bool
	frozen bool
	skew   time.Duration
	skewed bool
	runID  atomic.Pointer[string] // the run id that INFO shows, nil for none
}

// NewMini returns an empty server. Its links and itself are closed when the test ends, after clients.
func NewMini(t testing.TB) *Mini {
	t.Helper()
	m := &Mini{t: t, addr: "mini:6379", redis: miniredis.NewMiniRedis()}
	m.redis.ClockTTL(true)
	if conn, err := m.redis.Dial(); err != nil { // the first dial starts the server
		t.Fatalf("miniredis: %v", err)
	} else {
		_ = conn.Close()
	}
	t.Cleanup(func() {
		m.Thaw()
		for _, l := range m.Links() {
			l.close()
		}
		m.redis.Close()
	})
	return m
}

// SetAddr sets the address under which clients of links that are made from now on know the server.
func (m *Mini) SetAddr(addr string) { m.addr = addr }

// Miniredis returns the server itself, for direct access to its keys.
func (m *Mini) Miniredis() *miniredis.Miniredis { return m.redis }

// NewLink returns a new link to the server. Give each client its own, so that each can be broken alone.
func (m *Mini) NewLink() *Link {
	l := newLink(m.dial)
	l.option = ClientOption(m.addr)
	l.option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return l.connect(ctx, addr, d.Timeout)
	}
	l.arrive = m.tick
	m.mu.Lock()
	defer m.mu.Unlock()
	l.frozen = m.frozen
	m.links = append(m.links, l)
	return l
}

// Links returns all links, the oldest first.
func (m *Mini) Links() []*Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.links)
}

// Option returns the client options of a lock, over a new link.
func (m *Mini) Option() rueidis.ClientOption { return m.NewLink().Option() }

// Client returns a client over a new link. It is closed when the test ends.
func (m *Mini) Client(t testing.TB) rueidis.Client {
	t.Helper()
	return m.NewLink().Client(t)
}

// Calls returns how many commands of that name have reached the server, over all links.
func (m *Mini) Calls(name string) int {
	n := 0
	for _, l := range m.Links() {
		n += l.Calls(name)
	}
	return n
}

// AllCalls returns how many commands have reached the server over all links, by upper-case name.
func (m *Mini) AllCalls() map[string]int {
	sum := map[string]int{}
	for _, l := range m.Links() {
		for name, n := range l.AllCalls() {
			sum[name] += n
		}
	}
	return sum
}

// ResetCalls sets all counts to zero.
func (m *Mini) ResetCalls() {
	for _, l := range m.Links() {
		l.ResetCalls()
	}
}

func (m *Mini) dial(context.Context, string) (net.Conn, error) {
	m.mu.Lock()
	down := m.down
	m.mu.Unlock()
	if down {
		return nil, errRefused()
	}
	return m.redis.Dial()
}

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
