package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Store is a kind of database to run a test against.
type Store struct {
	Name    string
	Dialect sqlguard.Dialect

	create func(tb testing.TB) (driver, dsn string)
}

// Database makes an empty database and returns how to open it: the driver's name
// and the data source. It ends with the servers, SQLite's with the test.
func (s Store) Database(tb testing.TB) (driver, dsn string) {
	tb.Helper()
	return s.create(tb)
}

// Open makes an empty database and opens it until the test ends.
func (s Store) Open(tb testing.TB) *sql.DB {
	tb.Helper()
	driver, dsn := s.create(tb)
	return Open(tb, driver, dsn)
}

// Open opens a database until the test ends.
func Open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxIdleConns(16) // as many as the tests use at once
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Servers are the servers of one run of tests. The zero value is ready, and safe
// for concurrent use.
type Servers struct {
	postgres, mariadb once
	databases         atomic.Int64
}

type once struct {
	sync.Once
	server *server
	err    error
}

// Close ends every server that was started.
func (s *Servers) Close() error {
	var failed []error
	for _, o := range []*once{&s.postgres, &s.mariadb} {
		if o.server != nil {
			o.server.end()
			failed = append(failed, os.RemoveAll(o.server.dir))
		}
	}
	return errors.Join(failed...)
}

// Stores returns PostgreSQL, MariaDB and SQLite.
func (s *Servers) Stores() []Store {
	return []Store{
		{Name: "PostgreSQL", Dialect: sqlguard.PostgreSQL, create: func(tb testing.TB) (string, string) {
			return s.database(tb, &s.postgres, postgres)
		}},
		{Name: "MariaDB", Dialect: sqlguard.MySQL, create: func(tb testing.TB) (string, string) {
			return s.database(tb, &s.mariadb, mariadb)
		}},
		{Name: "SQLite", Dialect: sqlguard.SQLite, create: func(tb testing.TB) (string, string) {
			file := filepath.Join(tb.TempDir(), "db")
			return "sqlite", SQLiteDSN(file)
		}},
	}
}

// SQLiteDSN is the data source of a file that several connections write to: they
// wait for each other instead of failing, and readers do not wait at all.
func SQLiteDSN(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

func (s *Servers) database(tb testing.TB, o *once, k kind) (driver, dsn string) {
	tb.Helper()
	o.Do(func() { o.server, o.err = k.start() })
	if missing := (*missingError)(nil); errors.As(o.err, &missing) && os.Getenv("CI") != "true" {
		tb.Skip(missing)
	}
	if o.err != nil {
		tb.Fatal(o.err)
	}
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	if _, err := o.server.admin.ExecContext(context.Background(), "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	return o.server.driver, o.server.dsn(name)
}
