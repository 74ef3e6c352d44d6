package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/freeport"
)

// Default is the program that Start runs if none is named, found on PATH.
const Default = "redis-server"

// startLimit bounds the time that a server needs to answer, also on a busy machine.
const startLimit = 20 * time.Second

// Server is a running redis-server.
type Server struct {
	Addr  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process was waited for
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
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fencelock-peers-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ended: make(chan struct{}), dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	command := append(under(dir), binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no")
	s.cmd = exec.Command(command[0], command[1:]...)
	dieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // reports that the process was killed, as it is at the end
	}()
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
		case <-s.ended:
			return errors.New("the process has ended")
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	id, err := s.info(ctx, "server", "process_id")
	if err == nil && id != strconv.Itoa(s.cmd.Process.Pid) {
		err = fmt.Errorf("%s belongs to process %s", s.Addr, id)
	}
	return err
}

// Close ends the process and removes its folder.
func (s *Server) Close() error {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it may have ended by itself
		<-s.ended
	}
	return os.RemoveAll(s.dir)
}

// PID returns the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }
