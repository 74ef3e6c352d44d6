package sqltest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

var mariadb = kind{
	name:    "MariaDB",
	install: "apt-get install mariadb-server",
	program: []string{"/usr/sbin/mariadbd", "/usr/local/bin/mariadbd", "/usr/local/mysql/bin/mariadbd"},
	user:    "mysql",
	driver:  "mysql",
	stop:    syscall.SIGKILL, // a clean end takes seconds, and the data is never read again
	prepare: func(_, dir string) *exec.Cmd {
		return exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+filepath.Join(dir, "data"),
			"--tmpdir="+dir, // where another server that starts would delete its tables
			"--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=normal")
	},
	serve: func(program, dir string, port int) *exec.Cmd {
		return exec.Command(program, "--no-defaults", "--datadir="+filepath.Join(dir, "data"),
			"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port),
			"--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"),
			// Without the grant tables any user of this machine may connect, as with PostgreSQL's "trust".
			"--skip-grant-tables", "--skip-networking=0", "--skip-name-resolve",
			"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-buffer-pool-size=64M")
	},
	dsn: func(port int, database string) string {
		return fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s", port, database)
	},
	dataDir: `SELECT @@datadir`,
}
