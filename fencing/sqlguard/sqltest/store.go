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
	"github.com/seed74116694/fencelock/internal/test/scratch"
)

// Store is a kind of database to run a test against.
type Store struct {
	Name    string
	Dialect sqlguard.Dialect

	create func(tb testing.TB) (driver, dsn string)
}

// Database creates an empty database and returns the driver's name and the data source to open it. It ends with the
// servers, SQLite's with the test.
func (s Store) Database(tb testing.TB) (driver, dsn string) {
	tb.Helper()
	return s.create(tb)
}

// Open creates an empty database and opens it until the test ends.
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
	folder                   once[*scratch.Folder]
	postgres, mariadb, mysql once[*server]
	galera                   once[cluster]
	databases                atomic.Int64
}

// once creates a value at the first request for it.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

func (o *once[T]) get(make func() (T, error)) (T, error) {
	o.Do(func() { o.value, o.err = make() })
	return o.value, o.err
}

// Close ends every server that was started and removes all files.
func (s *Servers) Close() error {
	nodes := s.galera.value
	for _, running := range []*server{s.postgres.value, s.mariadb.value, s.mysql.value, nodes[0], nodes[1]} {
		if running != nil {
			running.end()
		}
	}
	if s.folder.value == nil {
		return nil
	}
	return s.folder.value.Close()
}

// Stores returns PostgreSQL, MariaDB, MySQL and SQLite.
func (s *Servers) Stores() []Store {
	return []Store{
		{Name: "PostgreSQL", Dialect: sqlguard.PostgreSQL, create: func(tb testing.TB) (string, string) {
			return s.database(tb, &s.postgres, postgres)
		}},
		{Name: "MariaDB", Dialect: sqlguard.MySQL, create: func(tb testing.TB) (string, string) {
			return s.database(tb, &s.mariadb, mariadb)
		}},
		{Name: "MySQL", Dialect: sqlguard.MySQL, create: func(tb testing.TB) (string, string) {
			return s.database(tb, &s.mysql, mysql)
		}},
		{Name: "SQLite", Dialect: sqlguard.SQLite, create: s.file},
	}
}

// Store returns the store of this name.
func (s *Servers) Store(name string) Store {
	for _, store := range s.Stores() {
		if store.Name == name {
			return store
		}
	}
	panic("sqltest: no store " + name)
}

// SQLiteDSN is the data source of a file that several connections write to: they wait for each other instead of
// failing, and readers do not wait at all.
func SQLiteDSN(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

func newFolder() (*scratch.Folder, error) { return scratch.New("sqltest") }

// file returns a file for SQLite, which is removed with the test.
func (s *Servers) file(tb testing.TB) (driver, dsn string) {
	tb.Helper()
	in, err := s.folder.get(newFolder)
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp(in.Path(), "SQLite")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return "sqlite", SQLiteDSN(filepath.Join(dir, "db"))
}

func (s *Servers) database(tb testing.TB, o *once[*server], k kind) (driver, dsn string) {
	tb.Helper()
	in, err := s.folder.get(newFolder)
	if err != nil {
		tb.Fatal(err)
	}
	running, err := o.get(func() (*server, error) { return k.start(in) })
	if missing := (*missingError)(nil); errors.As(err, &missing) && (missing.known || os.Getenv("CI") != "true") {
		tb.Skip(missing)
	}
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	if _, err := running.admin.ExecContext(context.Background(), "CREATE DATABASE "+name); err != nil {
		tb.Fatal(err)
	}
	return running.driver, running.dsn(name)
}
