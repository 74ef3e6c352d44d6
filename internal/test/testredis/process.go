//go:build unix

package testredis

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/test/process"
)

// startLimit bounds the time that a server needs to answer, and that several servers need to agree, even on a busy
// machine: a failed failover is tried again after 20 s.
const startLimit = 2 * time.Minute

// Server is a real server process on a loopback port, without persistence unless its arguments say so.
type Server struct {
	console
	binary  string
	args    []string
	env     []string     // in addition to the test's own
	prepare func() error // before the first launch on a new port; may be nil
	config  string       // a sentinel's configuration file, which replaces the arguments; "" for a server
	dir     string

	mu     sync.Mutex
	proc   *process.Process
	frozen bool
}

// Start runs the default binary on a free port with the given arguments added, and returns when it
// answers. The process ends with the test, or with the test binary.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	Require(t)
	return StartBinary(t, Binaries()[0], args...)
}

// StartBinary is Start for one of Binaries.
func StartBinary(t testing.TB, binary string, args ...string) *Server {
	t.Helper()
	s := newServer(t, binary, args...)
	s.begin()
	return s
}

func newServer(t testing.TB, binary string, args ...string) *Server {
	return &Server{console: console{t: t}, binary: binary, args: args, dir: t.TempDir()}
}

// begin is tryToBegin, and ends the test if that fails.
func (s *Server) begin() {
	s.t.Helper()
	if err := s.tryToBegin(); err != nil {
		s.t.Fatal(err)
	}
}

// beginAll starts several servers at once, and ends the test if one of them does not start.
func beginAll(t testing.TB, servers []*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { errs[i] = s.tryToBegin() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// tryToBegin starts the process for the first time, on a port that is free.
func (s *Server) tryToBegin() error {
	s.t.Cleanup(s.Kill)
	var err error
	for range 5 {
		if s.port, err = s.reservePort(); err != nil {
			continue
		}
		if s.prepare != nil {
			if err = s.prepare(); err != nil {
				continue
			}
		}
		if err = s.launch(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", s.binary, err)
}

// reservePort returns a port that is the server's until the end of the test, also while the server is down.
func (s *Server) reservePort() (int, error) {
	port, err := process.FindPort()
	if err != nil {
		return 0, err
	}
	s.t.Cleanup(port.Close)
	return port.Number, nil
}

// Port returns the port of the server.
func (s *Server) Port() int { return s.port }

// Binary returns the path of the server's binary.
func (s *Server) Binary() string { return s.binary }

// Option returns the client options of a lock for this server.
func (s *Server) Option() rueidis.ClientOption { return ClientOption(s.Addr()) }

// Masters returns the server itself.
func (s *Server) Masters() []*Server { return []*Server{s} }

// Client returns a client of this server, which waits for a busy machine. It is closed when the test ends.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	option := s.Option()
	option.Dialer.Timeout, option.ConnWriteTimeout = time.Minute, time.Minute
	return newClient(t, option)
}

// Kill ends the process as a crash does, and waits for its end. A dead server stays dead.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

// Restart starts the server again on its port, after Kill if it runs: empty, with another run id.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	var err error
	for range 5 {
		if err = s.run(); err == nil {
			return
		}
	}
	s.t.Errorf("restart of %s on %s: %v", s.binary, s.Addr(), err)
}

func (s *Server) kill() {
	if s.proc == nil {
		return
	}
	s.proc.Kill()
	s.proc, s.frozen = nil, false
	s.conn.close()
}

func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run()
}

// run starts the process and waits until it answers on its port.
func (s *Server) run() error {
	cmd := exec.Command(s.binary, s.arguments()...)
	cmd.Dir = s.dir
	if len(s.env) > 0 {
		cmd.Env = append(os.Environ(), s.env...)
	}
	proc, err := process.Start(cmd)
	if err != nil {
		return err
	}
	s.proc = proc
	if err := s.awaitAnswer(); err != nil {
		s.kill()
		return fmt.Errorf("port %d: %w", s.port, err)
	}
	if _, err := s.Command("CONFIG", "RESETSTAT"); err == nil { // a server with a password refuses
		s.infos.Store(0)
	}
	return nil
}

func (s *Server) arguments() []string {
	if s.config != "" {
		return []string{s.config, "--sentinel"}
	}
	// Over a socket a replica gets its copy at once, but the writes that follow up to a second later: no sync without a
	// disk.
	return append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "server.log",
		"--repl-diskless-sync", "no",
	}, s.args...)
}

// awaitAnswer polls the port until this very process answers, because another process may have taken the port.
func (s *Server) awaitAnswer() error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.proc.Ended:
			return fmt.Errorf("ended at once: %s", s.logTail())
		case <-limit.C:
			return fmt.Errorf("no answer within %v: %s", startLimit, s.logTail())
		case <-tick.C:
			info, err := s.info("server")
			if refusesInfo(err) || (err == nil && info["process_id"] == strconv.Itoa(s.proc.Process.Pid)) {
				return nil
			}
		}
	}
}

func (s *Server) logTail() string {
	log, err := os.ReadFile(s.dir + "/server.log")
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-500):])
}

// refusesInfo reports whether the server runs but requires a password.
func refusesInfo(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
}
