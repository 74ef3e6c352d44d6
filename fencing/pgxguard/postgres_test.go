package pgxguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ *testing.M }

func (s suite) Run() int {
	defer postgres.stop()
	return s.M.Run()
}

// postgres is the server of this run of tests. It listens on a socket in its own folder.
var postgres server

type server struct {
	once      sync.Once
	err       error
	dir       string
	process   *exec.Cmd
	databases atomic.Int64
}

// startLimit bounds the start of the server, which a busy machine slows down.
const startLimit = 5 * time.Minute

var errMissing = errors.New("PostgreSQL is not here: apt-get install postgresql")

// database creates an empty database and returns how to connect to it.
func (s *server) database(t *testing.T) string {
	t.Helper()
	if s.once.Do(func() { s.err = s.start() }); errors.Is(s.err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(s.err)
	}
	require.NoError(t, s.err)
	name := fmt.Sprint("test", s.databases.Add(1))
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return s.dsn(name)
}

func (s *server) dsn(database string) string {
	return fmt.Sprintf("host=%s user=tester database=%s", s.dir, database)
}

func (s *server) start() (err error) {
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(programs) == 0 {
		return errMissing
	}
	program := slices.Max(programs)
	if s.dir, err = os.MkdirTemp("", "pgxguard"); err != nil {
		return err
	}
	as := new(syscall.SysProcAttr)
	endWithParent(as)
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		if as.Credential, err = ownedBy("postgres", s.dir); err != nil {
			return err
		}
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.Command(filepath.Join(filepath.Dir(program), "initdb"), "--pgdata="+data, "--username=tester",
		"--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, s.dir
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, output)
	}
	s.process = exec.Command(program, "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+s.dir,
		"-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap", "-c", "fsync=off",
		"-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	s.process.SysProcAttr, s.process.Dir = as, s.dir
	if err := s.process.Start(); err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), s.dsn("postgres"))
		if err == nil {
			return conn.Close(context.Background())
		}
		if time.Since(begun) > startLimit {
			return err
		}
	}
}

// ownedBy gives the folder to an account, or else to "nobody", and returns it.
func ownedBy(name, folder string) (*syscall.Credential, error) {
	account, err := user.Lookup(name)
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(folder, int(uid), int(gid))
}

func (s *server) stop() {
	if s.process != nil {
		_ = s.process.Process.Signal(syscall.SIGQUIT) // at once, with its children
		_ = s.process.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// connect opens a pool until the test ends, which requires that each connection has been given back.
func connect(t *testing.T, dsn string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		given := func() bool { return pool.Stat().AcquiredConns() == 0 } // a closed one is given back in the background
		require.Eventually(t, given, time.Minute, time.Millisecond)
		pool.Close()
	})
	return pool
}
