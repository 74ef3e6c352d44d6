// Package sqltest starts real database servers for tests of code that uses package sqlguard: PostgreSQL, MariaDB and
// MySQL as separate processes, SQLite in files.
//
// [Servers] starts each server when the first test needs it, with its data in a temporary directory and on a free
// loopback port, and [Servers.Close] ends them by their process handles. Nothing is flushed to disk: speed is measured
// without it, and no data outlives the tests. A run that is killed leaves neither server nor file behind; outside Linux
// its servers keep running.
//
// Under root, the servers run as an unprivileged user, because they do not accept root. If a server's program is
// missing, a test is skipped with a hint how to install it; with CI=true in the environment it fails instead. Debian 12
// has no MySQL: the script install-mysql unpacks it. FENCELOCK_MYSQLD names another program, or is "none" if none is
// available: then its tests are skipped, also with CI=true.
package sqltest
