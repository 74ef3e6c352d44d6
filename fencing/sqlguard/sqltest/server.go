package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/test/process"
	"github.com/seed74116694/fencelock/internal/test/scratch"
)

// startLimit bounds the creation of the data directory and the start of a server, each. Both take some seconds on an
// idle machine; a busy machine is given time, and only a server that hangs is given up.
const startLimit = 5 * time.Minute

// server is a running database server.
type server struct {
	dir     string
	process *process.Process
	stop    os.Signal
	dsn     func(database string) string
	driver  string
	admin   *sql.DB
}

// kind is a kind of server.
type kind struct {
	name    string
	install string   // how to install it if it is missing
	program []string // its possible paths, as patterns
	// variable names the environment variable with the path, or with "none" if it is not available on this machine.
	variable string
	isOurs   func(program string) bool // nil: any
	user     string                    // the account to run it in place of root
	driver   string
	stop     os.Signal
	initial  string // the database to connect to first
	// initFile is written to dir/init.
	initFile string

	prepare func(program, dir string) *exec.Cmd           // makes dir/data
	serve   func(program, dir string, port int) *exec.Cmd // runs in the foreground
	dsn     func(port int, database string) string
	dataDir string // the query for a server's data directory
}

// find returns the program's path, or a missingError with a hint how to install it.
func (k kind) find() (string, error) {
	patterns := k.program
	switch said := os.Getenv(k.variable); {
	case k.variable == "" || said == "":
	case said == "none":
		return "", &missingError{what: fmt.Sprintf("%s cannot be had here: %s=none", k.name, k.variable), known: true}
	default:
		patterns = []string{said}
	}
	for _, pattern := range patterns {
		// The last match is the newest version, as long as they have two digits.
		matches, _ := filepath.Glob(pattern)
		for _, match := range slices.Backward(matches) {
			if k.isOurs == nil || k.isOurs(match) {
				return match, nil
			}
		}
	}
	return "", &missingError{what: fmt.Sprintf("%s is not here: %s", k.name, k.install)}
}

// missingError reports that a server's program is missing.
type missingError struct {
	what  string
	known bool // the environment declares it missing: no failure, not even with CI=true
}

func (e *missingError) Error() string { return e.what }

func (k kind) start(in *scratch.Folder) (s *server, err error) {
	program, err := k.find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(in.Path(), k.name)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "init"), []byte(k.initFile), 0o644); err != nil {
		return nil, err
	}
	as, err := process.Unprivileged(k.user, dir)
	if err != nil {
		return nil, err
	}
	if err := process.Run(as(k.prepare(program, dir))); err != nil {
		return nil, fmt.Errorf("%s: make its data directory: %w", k.name, err)
	}
	// Another process may take the port between its choice and the server's start.
	for range 3 {
		if s, err = k.serveOn(as, program, dir); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (k kind) serveOn(as func(*exec.Cmd) *exec.Cmd, program, dir string) (*server, error) {
	free, err := process.FindPort()
	if err != nil {
		return nil, err
	}
	port := free.Number
	free.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()

	command := k.serve(program, dir, port)
	command.Dir = dir
	command.Stdout, command.Stderr = log, log
	running, err := process.Start(as(command))
	if err != nil {
		return nil, err
	}
	s := &server{
		dir:     dir,
		process: running,
		stop:    k.stop,
		driver:  k.driver,
		dsn:     func(database string) string { return k.dsn(port, database) },
	}
	if err := s.awaitReady(k); err != nil {
		text, _ := os.ReadFile(log.Name())
		s.end()
		return nil, fmt.Errorf("%s: %w\n%s", k.name, err, text)
	}
	return s, nil
}

// awaitReady waits until this very process answers: a foreign server on the port has another data directory.
func (s *server) awaitReady(k kind) error {
	db, err := sql.Open(s.driver, s.dsn(k.initial))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var data string
		if err = db.QueryRowContext(ctx, k.dataDir).Scan(&data); err == nil {
			if filepath.Clean(data) == filepath.Join(s.dir, "data") {
				s.admin = db
				return nil
			}
			err = fmt.Errorf("another server, in %s, has the port", data)
			break
		}
		select {
		case <-s.process.Ended:
			err = fmt.Errorf("it ended before it was ready: %w", s.process.Err)
		case <-ctx.Done():
			err = fmt.Errorf("not ready after %v: %w", startLimit, err)
		case <-tick.C:
			continue
		}
		break
	}
	return errors.Join(err, db.Close())
}

// end stops the process and waits for it; it may have ended by itself.
func (s *server) end() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	s.process.End(s.stop)
}
