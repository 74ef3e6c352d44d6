// Package testpostgres starts a PostgreSQL for tests, on a socket in a folder of its own. Only tests import it.
package testpostgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/process"
)

// Server is the server of one run of tests. The zero value is ready, and starts with its first database. Stop it in
// TestMain.
type Server struct {
	once      sync.Once
	err       error
	programs  string // their folder
	dir       string
	process   *process.Process
	as        func(*exec.Cmd) *exec.Cmd
	databases atomic.Int64
}

// startLimit bounds the start of the server, which a busy machine slows down.
const startLimit = 5 * time.Minute

var errMissing = errors.New("PostgreSQL is not here: apt-get install postgresql")

// Database creates an empty database and returns how to connect to it, for pgx and libpq. Without PostgreSQL it skips
// the test, or fails it if CI=true.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	s.once.Do(func() { s.err = s.start() })
	if errors.Is(s.err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(s.err)
	}
	name := fmt.Sprint("test", s.databases.Add(1))
	if s.err == nil {
		s.err = s.run("createdb", "--host="+s.dir, "--username=tester", name)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return fmt.Sprintf("host=%s user=tester database=%s", s.dir, name)
}

func (s *Server) start() (err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return errMissing
	}
	s.programs = filepath.Dir(slices.Max(found))
	if s.dir, err = os.MkdirTemp("", "postgres"); err != nil {
		return err
	}
	if s.as, err = process.Unprivileged("postgres", s.dir); err != nil { // PostgreSQL refuses to run as root
		return err
	}
	data := filepath.Join(s.dir, "data")
	if err := s.run("initdb", "--pgdata="+data, "--username=tester", "--auth=trust", "--encoding=UTF8", "--no-locale",
		"--no-sync"); err != nil {
		return err
	}
	s.process, err = process.Start(s.command("postgres", "-D", data, "-c", "listen_addresses=",
		"-c", "unix_socket_directories="+s.dir, "-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap",
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"))
	if err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := s.run("pg_isready", "--host="+s.dir)
		if err == nil || time.Since(begun) > startLimit {
			return err
		}
	}
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(s.programs, program), args...)
	command.Dir = s.dir
	return s.as(command)
}

func (s *Server) run(program string, args ...string) error {
	return process.Run(s.command(program, args...))
}

// Stop ends the server, if it runs, and removes its folder.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.End(syscall.SIGQUIT) // at once, with its children
	}
	_ = os.RemoveAll(s.dir)
}
