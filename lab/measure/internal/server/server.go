package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/test/process"
)

// Default is the program that Start runs if none is named, found on PATH.
const Default = "redis-server"

// startLimit bounds the time that a server needs to answer, also on a busy machine.
const startLimit = 20 * time.Second

// Server is a running redis-server.
type Server struct {
	Addr  string
	proc  *process.Process
	dir   string
	admin rueidis.Client // never carries measured commands
}

// Installed reports whether Default is on PATH.
func Installed() bool {
	_, err := exec.LookPath(Default)
	return err == nil
}

// Start runs a server, redis-server or valkey-server, and returns when it answers.
func Start(ctx context.Context, binary string) (*Server, error) {
	return start(ctx, binary, func(string) []string { return nil })
}

// start runs the program directly, or under another program that gets the server's folder. Another process may take a
// free port between its choice and its use; then another port is tried.
func start(ctx context.Context, binary string, under func(dir string) []string) (*Server, error) {
	var failures error
	for range 5 {
		s, err := startOnce(ctx, binary, under)
		if err == nil {
			return s, nil
		}
		failures = errors.Join(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%s: %w", binary, failures)
}

func startOnce(ctx context.Context, binary string, under func(dir string) []string) (_ *Server, err error) {
	free, err := process.FindPort()
	if err != nil {
		return nil, err
	}
	port := free.Number
	free.Close()
	dir, err := os.MkdirTemp("", "fencelock-peers-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	command := append(under(dir), binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no")
	if s.proc, err = process.Start(exec.Command(command[0], command[1:]...)); err != nil {
		return nil, err
	}
	return s, s.connect(ctx)
}

// connect waits for the server's first answer, and makes sure that it is this server and no other on the port.
func (s *Server) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		})
		if err == nil {
			s.admin = client
			break
		}
		if client != nil {
			client.Close()
		}
		select {
		case <-s.proc.Ended:
			return errors.New("the process has ended")
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	id, err := s.info(ctx, "server", "process_id")
	if err == nil && id != strconv.Itoa(s.proc.Process.Pid) {
		err = fmt.Errorf("%s belongs to process %s", s.Addr, id)
	}
	return err
}

// Close ends the process and removes its folder.
func (s *Server) Close() error {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.proc != nil {
		s.proc.Kill()
	}
	return os.RemoveAll(s.dir)
}

// PID returns the process id.
func (s *Server) PID() int { return s.proc.Process.Pid }

// The programs that count instructions, of the Debian package valgrind.
const (
	valgrind = "valgrind"
	monitor  = "vgdb" // talks to a program that runs under valgrind
)

// CountsInstructions reports whether StartCounted has the programs that it needs.
func CountsInstructions() bool {
	for _, program := range []string{valgrind, monitor} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return true
}

// StartCounted runs a server under a count of its instructions. It is some fifty times slower than a plain server.
func StartCounted(ctx context.Context, binary string) (*Server, error) {
	if !CountsInstructions() {
		return nil, errors.New("no valgrind on PATH: install the Debian package valgrind")
	}
	path, err := exec.LookPath(binary) // valgrind does not search PATH
	if err != nil {
		return nil, err
	}
	return start(ctx, path, func(dir string) []string {
		return []string{valgrind, "--tool=callgrind", "--vgdb-prefix=" + pipes(dir), "--callgrind-out-file=" + dump(dir)}
	})
}

func pipes(dir string) string { return filepath.Join(dir, "vgdb") }

func dump(dir string) string { return filepath.Join(dir, "callgrind.out") }

// Instructions returns the number of instructions that the program has run since the last call, without the kernel's.
// The server is one of StartCounted.
func (s *Server) Instructions(ctx context.Context) (int64, error) {
	told, err := exec.CommandContext(ctx, monitor,
		"--vgdb-prefix="+pipes(s.dir), "--pid="+strconv.Itoa(s.PID()), "dump").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", monitor, err, bytes.TrimSpace(told))
	}
	dumps, err := filepath.Glob(dump(s.dir) + ".*") // numbered; the file without a number is for the end
	if err != nil || len(dumps) != 1 {
		return 0, errors.Join(err, fmt.Errorf("%d dumps of callgrind where there should be one", len(dumps)))
	}
	text, err := os.ReadFile(dumps[0])
	if err != nil {
		return 0, err
	}
	total, err := totals(string(text))
	return total, errors.Join(err, os.Remove(dumps[0]))
}

// totals parses the sum of a dump of callgrind.
func totals(dump string) (int64, error) {
	for line := range strings.Lines(dump) {
		if sum, ok := strings.CutPrefix(line, "totals:"); ok {
			return strconv.ParseInt(strings.TrimSpace(sum), 10, 64)
		}
	}
	return 0, errors.New("a dump of callgrind without its totals")
}
