// Package sqltest starts real database servers for tests of code that uses
// package sqlguard: PostgreSQL and MariaDB as processes of their own, SQLite in
// files.
//
// [Servers] starts each server when the first test asks for it, with its data in
// a temporary directory and on a free loopback port, and [Servers.Close] ends
// them by their process handles. Nothing is flushed to disk: speed is measured
// without it, and no data outlives the tests.
//
// Run by root, the servers run as an unprivileged user, since neither accepts
// root. Where a server's program is missing a test is skipped with the name of
// the package to install; with CI=true in the environment it fails instead.
package sqltest
