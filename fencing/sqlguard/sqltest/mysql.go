package sqltest

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
)

// mysql is MySQL itself. In Debian 12 the program of this name is MariaDB's.
var mysql = kind{
	name:     "MySQL",
	install:  "run fencing/sqlguard/sqltest/install-mysql as root, or set FENCELOCK_MYSQLD to the program",
	variable: "FENCELOCK_MYSQLD",
	program: []string{
		"/opt/fencelock-mysql/mysqld", "/usr/local/mysql/bin/mysqld", "/usr/local/bin/mysqld",
		"/usr/libexec/mysqld", "/usr/sbin/mysqld",
	},
	isOurs: func(program string) bool {
		version, err := exec.Command(program, "--version").Output()
		return err == nil && !bytes.Contains(version, []byte("MariaDB"))
	},
	user:   "mysql",
	driver: "mysql",
	stop:   syscall.SIGKILL, // a clean end takes seconds, and the data is never read again
	// MySQL allows root from "localhost" only, and without name resolution 127.0.0.1 does not count as that.
	initFile: "CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n",
	prepare: func(program, dir string) *exec.Cmd {
		return exec.Command(program, append(mysqlOptions(dir), "--initialize-insecure",
			"--init-file="+filepath.Join(dir, "init"))...)
	},
	serve: func(program, dir string, port int) *exec.Cmd {
		return exec.Command(program, append(mysqlOptions(dir), "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port),
			"--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"), "--mysqlx=OFF")...)
	},
	dsn: func(port int, database string) string {
		return fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s", port, database)
	},
	dataDir: `SELECT @@datadir`,
}

func mysqlOptions(dir string) []string {
	return []string{
		"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--tmpdir=" + dir, "--secure-file-priv=NULL",
		"--skip-name-resolve", "--disable-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF",
		"--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=16M",
	}
}
