package sqltest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

var postgres = kind{
	name:    "PostgreSQL",
	install: "apt-get install postgresql",
	program: []string{"/usr/lib/postgresql/*/bin/postgres", "/usr/local/bin/postgres", "/usr/local/pgsql/bin/postgres"},
	user:    "postgres",
	driver:  "pgx",
	stop:    syscall.SIGQUIT, // at once, but with its children
	initial: "postgres",
	prepare: func(program, dir string) *exec.Cmd {
		return exec.Command(filepath.Join(filepath.Dir(program), "initdb"), "--pgdata="+filepath.Join(dir, "data"),
			"--username=tester", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	},
	serve: func(program, dir string, port int) *exec.Cmd {
		return exec.Command(program, "-D", filepath.Join(dir, "data"), "-h", "127.0.0.1", "-p", fmt.Sprint(port),
			"-c", "unix_socket_directories=", "-c", "max_connections=100", "-c", "shared_buffers=64MB",
			// Shared memory in the data directory, which is removed with it.
			"-c", "dynamic_shared_memory_type=mmap",
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	},
	dsn: func(port int, database string) string {
		return fmt.Sprintf("postgres://tester@127.0.0.1:%d/%s?sslmode=disable", port, database)
	},
	dataDir: `SHOW data_directory`,
}
