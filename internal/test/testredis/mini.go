package testredis

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
)

// Mini is an in-process server for a testing/synctest bubble: it has no listener, and TTLs and TIME follow the bubble's
// clock. It must be made inside the bubble, as must everything that uses it. It also works outside of bubbles, in real
// time.
type Mini struct {
	t      testing.TB
	addr   string
	server atomic.Pointer[miniServer]

	mu        sync.Mutex
	links     []*Link
	down      bool
	frozen    bool
	stalled   bool      // the log stands still
	committed *Snapshot // what the log had when it began to
}

// NewMini returns an empty server. Its links and itself are closed when the test ends, after clients.
func NewMini(t testing.TB) *Mini {
	t.Helper()
	m := &Mini{t: t, addr: "mini:6379"}
	m.server.Store(newMiniServer(t))
	if os.Getenv("FENCELOCK_TRACE") != "" {
		m.CheckScripts()
	}
	t.Cleanup(func() {
		m.Thaw()
		for _, l := range m.Links() {
			l.close()
		}
		m.Miniredis().Close()
	})
	return m
}

// SetAddr sets the address under which clients of links that are made from now on know the server.
func (m *Mini) SetAddr(addr string) { m.addr = addr }

// Miniredis returns the server itself, for direct access to its keys.
func (m *Mini) Miniredis() *miniredis.Miniredis { return m.server.Load().redis }

// NewLink returns a new link to the server. Give each client its own, so that each can be broken alone.
func (m *Mini) NewLink() *Link {
	l := newLink(m.dial)
	l.option = ClientOption(m.addr)
	l.option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return l.connect(ctx, addr, d.Timeout)
	}
	m.own(l)
	return l
}

// Listen returns a link with a listener, for clients in other processes.
func (m *Mini) Listen() *Proxy {
	p := newProxy(m.t, m.dial)
	m.own(p.Link)
	return p
}

// own makes a link that nobody uses so far one of the server's.
func (m *Mini) own(l *Link) {
	l.arrive = func() { m.server.Load().tick() }
	m.mu.Lock()
	defer m.mu.Unlock()
	l.frozen, l.stalled = m.frozen, m.stalled
	m.links = append(m.links, l)
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
	return m.Miniredis().Dial()
}

// FlushAll empties the server.
func (m *Mini) FlushAll() { m.Miniredis().FlushAll() }

// FlushScripts makes the server forget all scripts.
func (m *Mini) FlushScripts() { m.run("SCRIPT", "FLUSH") }

// Crash cuts all connections, refuses new ones, and loses all keys and scripts, until Recover. INFO shows another run
// id then, if it shows any.
func (m *Mini) Crash() {
	m.Stop()
	m.FlushAll()
	m.FlushScripts()
	if m.server.Load().runID.Load() != nil {
		m.NewProcess()
	}
}

// NewProcess has INFO show a run id, another one with each call, also inside scripts: to clients the server is another
// process then. A server by itself shows none. Keys and scripts stay.
func (m *Mini) NewProcess() {
	id := fmt.Sprintf("%020x%020x", rand.Uint64(), rand.Uint64())
	s := m.server.Load()
	s.runID.Store(&id)
	s.shows.Store(true)
	s.intercept()
}

// RunID returns the run id that INFO shows, "" for none.
func (m *Mini) RunID() string {
	if id := m.server.Load().runID.Load(); id != nil {
		return *id
	}
	return ""
}

// Demote makes the server a replica of one that does not answer: it keeps its data and connections, refuses writes, and
// INFO shows its role. It lasts until Promote.
func (m *Mini) Demote() {
	s := m.server.Load()
	s.demote(true)
	s.shows.Store(true)
	s.intercept()
}

// Promote ends Demote.
func (m *Mini) Promote() { m.server.Load().demote(false) }

// Replicate has WAIT answer that so many replicas have each write.
func (m *Mini) Replicate(n int) {
	s := m.server.Load()
	s.replicas.Store(int64(n))
	s.intercept()
}

// demote changes the role, not in the middle of a script where scripts are observed: no server does that.
func (s *miniServer) demote(replica bool) {
	s.script.Lock()
	defer s.script.Unlock()
	s.replica.Store(replica)
}

// Swap has two servers change places: each answers at the other's address from now on, with its data, clock, role and
// run id. The connections of both are cut.
func (m *Mini) Swap(other *Mini) {
	mine := m.server.Load()
	m.server.Store(other.server.Load())
	other.server.Store(mine)
	m.cut()
	other.cut()
}

// Stop is Crash without loss of keys and scripts, until Recover.
func (m *Mini) Stop() {
	m.mu.Lock()
	m.down = true
	m.mu.Unlock()
	m.cut()
}

func (m *Mini) cut() {
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

// StallCommits makes the server one whose durable log stands still: it executes commands and publishes messages, and no
// reply to a script arrives until ResumeCommits or LoseCommits.
func (m *Mini) StallCommits() {
	m.setStalled(true) // first, so that what is not in the snapshot is not answered
	committed := m.Snapshot()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.committed = committed
}

// ResumeCommits ends StallCommits: the log has everything, and the replies arrive.
func (m *Mini) ResumeCommits() { m.setStalled(false) }

// LoseCommits ends StallCommits by a failover to a server that has what was committed before it, and no more.
// Connections are cut, and replies that have not arrived are lost.
func (m *Mini) LoseCommits() {
	m.mu.Lock()
	committed := m.committed
	m.mu.Unlock()
	m.Stop()
	m.Rollback(committed)
	if m.server.Load().runID.Load() != nil {
		m.NewProcess()
	}
	m.setStalled(false)
	m.Recover()
}

func (m *Mini) setStalled(stalled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalled = stalled
	for _, l := range m.links {
		l.set(func() { l.stalled = stalled })
	}
}

// Skew sets the server's wall clock d ahead of the bubble's, or behind it for a negative d. A step forward expires keys
// whose time it passes, as on a real server. A step backward lengthens no TTL.
func (m *Mini) Skew(d time.Duration) {
	s := m.server.Load()
	s.script.Lock() // not in the middle of a script that is observed
	defer s.script.Unlock()
	s.mu.Lock()
	s.skew, s.skewed = d, true
	s.mu.Unlock()
	s.tick()
}

// run executes a command in the server without a connection.
func (m *Mini) run(args ...string) string { return m.server.Load().run(false, args...) }

// miniServer is the server that answers at the address of a Mini.
type miniServer struct {
	redis    *miniredis.Miniredis
	hook     sync.Once
	shows    atomic.Bool            // INFO shows the role, and the run id
	runID    atomic.Pointer[string] // the run id that INFO shows, nil for none
	replica  atomic.Bool
	replicas atomic.Int64 // what WAIT answers
	observe  atomic.Pointer[func(*Script)]

	mu     sync.Mutex
	skew   time.Duration
	skewed bool

	script  sync.Mutex                  // held while a replica, or a server that is observed, runs a script
	inner   atomic.Pointer[server.Peer] // whose script it is
	running *Script                     // that is observed, or nil
	sender  atomic.Pointer[server.Peer] // of a message of the observed script
}

func newMiniServer(t testing.TB) *miniServer {
	s := &miniServer{redis: miniredis.NewMiniRedis()}
	s.redis.ClockTTL(true)
	if conn, err := s.redis.Dial(); err != nil { // the first dial starts the server
		t.Fatalf("miniredis: %v", err)
	} else {
		_ = conn.Close()
	}
	return s
}

// tick moves a skewed server's clock, which stands still between commands, to the present. The clock is never left to
// follow the bubble by itself again, because that would count as one huge step.
func (s *miniServer) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.skewed {
		s.redis.SetTime(time.Now().UTC().Add(s.skew))
	}
}

// now returns the time on the server's clock.
func (s *miniServer) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.skew)
}

// intercept has the server answer INFO, as a replica the commands that write, and observed scripts in the place of
// miniredis.
func (s *miniServer) intercept() {
	s.hook.Do(func() {
		s.redis.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
			observed := s.observe.Load() != nil
			switch {
			case cmd == "INFO" && s.shows.Load():
				peer.WriteBulk(s.info())
			case cmd == "WAIT":
				peer.WriteInt(int(s.replicas.Load()))
			case observed && cmd == "PUBLISH" && inScript(peer):
				return s.publish(peer, append([]string{cmd}, args...))
			case observed && (cmd == "EVAL" || cmd == "EVALSHA"):
				return s.show(peer, append([]string{cmd}, args...))
			case !s.replica.Load():
				return false
			case writeCommands[cmd]:
				peer.WriteError(readOnly)
			case cmd == "EVAL" || cmd == "EVALSHA":
				return s.evaluate(peer, append([]string{cmd}, args...))
			default:
				return false
			}
			return true
		})
	})
}

func (s *miniServer) info() string {
	role, run := "master", ""
	if s.replica.Load() {
		role = "slave"
	}
	if id := s.runID.Load(); id != nil {
		run = "run_id:" + *id + "\r\n"
	}
	return run + "role:" + role + "\r\ncluster_enabled:0\r\n"
}

// readOnly is what a replica answers to a command that writes, also inside a script.
const readOnly = "READONLY You can't write against a read only replica."

// writeCommands are those that scripts and tests use.
var writeCommands = map[string]bool{
	"DEL": true, "HDEL": true, "HINCRBY": true, "HSET": true, "HSETNX": true, "PEXPIRE": true, "SET": true, "ZADD": true,
	"ZPOPMIN": true, "ZREM": true,
}

// evaluate runs a script on a replica. A script that writes fails with the refusal of the command, as on a real server;
// miniredis would wrap it. It reports false for the script that it runs itself.
func (s *miniServer) evaluate(peer *server.Peer, cmd []string) bool {
	if s.inner.Load() == peer {
		return false
	}
	peer.WriteRaw(unwrapped(s.run(peer.Resp3, cmd...)))
	return true
}

// unwrapped returns the reply to a script without what miniredis adds to the refusal of a replica.
func unwrapped(reply string) string {
	if strings.HasPrefix(reply, "-") && strings.Contains(reply, readOnly) {
		return "-" + readOnly + "\r\n"
	}
	return reply
}

// run executes a command without a connection.
func (s *miniServer) run(resp3 bool, args ...string) string {
	s.script.Lock()
	defer s.script.Unlock()
	return s.runLocked(resp3, args...)
}

func (s *miniServer) runLocked(resp3 bool, args ...string) string {
	var reply bytes.Buffer
	w := bufio.NewWriter(&reply)
	peer := server.NewPeer(w)
	peer.Resp3 = resp3
	s.inner.Store(peer)
	srv := s.redis.Server()
	if srv == nil {
		return "-ERR the server is closed\r\n"
	}
	srv.Dispatch(peer, args)
	_ = w.Flush()
	return reply.String()
}

// Script is one script call that a Mini is about to run, or has run.
type Script struct {
	Digest     string // of its source
	Source     string // where the call has it
	Keys, Args []string
	Reply      any // string, int64, nil, []any of these, or an error; set by Run, as what follows
	Published  []scriptfuzz.Publication

	server *miniServer
	peer   *server.Peer
	cmd    []string
	raw    string
	ran    bool
}

// OnScript has f run each script call from now on, one at a time, by Run. Nothing else may run on the server from the
// call of f to its end. If f does not run the call, it runs afterwards.
func (m *Mini) OnScript(f func(*Script)) {
	s := m.server.Load()
	s.observe.Store(&f)
	s.intercept()
}

// Run runs the script.
func (c *Script) Run() {
	s := c.server
	s.running = c
	defer func() { s.running = nil }()
	c.raw, c.ran = unwrapped(s.runLocked(c.peer.Resp3, c.cmd...)), true
	reply, err := value([]byte(c.raw))
	if c.Reply = reply; err != nil {
		c.Reply = err
	}
}

// Command runs a command on the server, before or after the script.
func (c *Script) Command(args ...string) any {
	reply, err := value([]byte(c.server.runLocked(false, args...)))
	if err != nil {
		return err
	}
	return reply
}

// show has the observer run a script call. It reports false for the call that the observer runs.
func (s *miniServer) show(peer *server.Peer, cmd []string) bool {
	if s.inner.Load() == peer {
		return false
	}
	c := &Script{server: s, peer: peer, cmd: cmd, Digest: cmd[1]}
	if n, err := strconv.Atoi(cmd[2]); err == nil && n <= len(cmd)-3 {
		c.Keys, c.Args = cmd[3:3+n], cmd[3+n:]
	}
	if cmd[0] == "EVAL" {
		c.Digest, c.Source = digest(cmd[1]), cmd[1]
	}
	s.script.Lock()
	defer s.script.Unlock()
	(*s.observe.Load())(c)
	if !c.ran {
		c.Run()
	}
	peer.WriteRaw(c.raw)
	return true
}

// publish sends a message of the observed script, and notes how many clients receive it.
func (s *miniServer) publish(peer *server.Peer, cmd []string) bool {
	if s.sender.Load() == peer || s.running == nil || len(cmd) != 3 {
		return false
	}
	var reply bytes.Buffer
	w := bufio.NewWriter(&reply)
	sender := server.NewPeer(w)
	sender.Ctx = peer.Ctx
	s.sender.Store(sender)
	s.redis.Server().Dispatch(sender, cmd)
	_ = w.Flush()
	if n, err := value(reply.Bytes()); err == nil {
		s.running.Published = append(s.running.Published, scriptfuzz.Publication{Text: cmd[2], Receivers: n.(int64)})
	}
	peer.WriteRaw(reply.String())
	return true
}

// inScript reports whether a command comes from a script. Miniredis knows it, and does not export it.
func inScript(peer *server.Peer) bool {
	context := reflect.ValueOf(peer.Ctx)
	if context.Kind() != reflect.Pointer || context.IsNil() {
		return false
	}
	nested := context.Elem().FieldByName("nested")
	return nested.IsValid() && nested.Bool()
}

// CheckScripts compares each script call with the model of the script fuzzer from now on: the reply, the messages, and
// the keys of the lock. A difference fails the test. With FENCELOCK_TRACE in the environment every Mini does it.
func (m *Mini) CheckScripts() {
	trace := m.Trace(func(err error) { m.t.Errorf("the model of the scripts: %v", err) })
	m.t.Cleanup(func() { m.t.Logf("script calls: %d as in the model; not compared: %v", trace.Checked, trace.Skipped) })
}

// Trace is CheckScripts with a function that is told each difference. The trace may be read while the server has no
// clients.
func (m *Mini) Trace(differs func(error)) *scriptfuzz.Trace {
	trace := scriptfuzz.NewTrace(digest)
	m.OnScript(func(c *Script) {
		err := trace.Check(scriptfuzz.Call{
			Digest: c.Digest, Source: c.Source, Keys: c.Keys, Args: c.Args, Command: c.Command,
			Run: func() (any, []scriptfuzz.Publication) {
				c.Run()
				return c.Reply, c.Published
			},
		})
		if err != nil {
			differs(err)
		}
	})
	return trace
}

// Command runs a command without a connection. The reply is a string, int64, nil or []any of these; an error reply is
// an error.
func (m *Mini) Command(args ...string) (any, error) { return value([]byte(m.run(args...))) }

func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
