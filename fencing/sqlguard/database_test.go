package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed74116694/fencelock/fencing"
)

// database accepts every claim, counts what it is sent, and keeps a log of it.
type database struct {
	sent    atomic.Int64
	mu      sync.Mutex
	log     []string // guarded by mu
	failing int      // the statement with this number fails, counted from 1
	failure error
	missing map[string]bool // guard rows that only an INSERT makes
	shown   row             // what SHOW ERRORS answers
}

func (d *database) note(word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, word)
}

// wrote logs a statement and returns its word: the resource, which is the argument that is bytes, or what else it is.
func (d *database) wrote(query string, args []driver.NamedValue) (word string, err error) {
	if d.sent.Add(1) == int64(d.failing) {
		return "", d.failure
	}
	word = "mark"
	switch {
	case strings.Contains(query, "pragma_schema_version"):
		word = "changes"
	case strings.HasPrefix(query, "SHOW ERRORS"):
		word = "errors"
	}
	for _, arg := range args {
		if name, ok := arg.Value.([]byte); ok {
			word = string(name)
		}
	}
	d.note(word)
	return word, nil
}

func (d *database) open(t *testing.T) *sql.DB {
	db := sql.OpenDB(d)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d *database) Connect(context.Context) (driver.Conn, error) {
	return &connection{database: d}, nil
}

func (*database) Driver() driver.Driver { panic("not asked for") }

type connection struct {
	*database
	mark string // PostgreSQL's
}

func (c *connection) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if c.sent.Add(1) == int64(c.failing) {
		return nil, c.failure
	}
	c.note("begin")
	return c, nil
}

func (c *connection) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	name, err := c.wrote(query, args)
	if err != nil {
		return nil, err
	}
	c.keepMark(args)
	if c.missing[name] && strings.HasPrefix(query, "UPDATE") {
		return notFound{}, nil
	}
	delete(c.missing, name)
	return accepted{}, nil
}

func (c *connection) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if _, err := c.wrote(query, args); err != nil {
		return nil, err
	}
	switch {
	case strings.Contains(query, "current_setting('fencelock.mark'"):
		return &row{driver.Value(c.mark)}, nil
	case strings.Contains(query, "pragma_schema_version"):
		return &row{int64(0), "", ""}, nil
	case strings.HasPrefix(query, "SHOW ERRORS"):
		return new(slices.Clone(c.shown)), nil
	case strings.Contains(query, "fencelock.probe"):
		return &row{fmt.Sprint(args)}, nil // nothing is left of it
	}
	c.keepMark(args)
	return &row{int64(0), int64(fencing.MaxToken)}, nil // of a resource that has been read and never written
}

// keepMark keeps the mark of a transaction, the only argument that is text.
func (c *connection) keepMark(args []driver.NamedValue) {
	for _, arg := range args {
		if text, ok := arg.Value.(string); ok {
			c.mark = text
		}
	}
}

func (*connection) Prepare(string) (driver.Stmt, error) { panic("not asked for") }

func (*connection) Begin() (driver.Tx, error) { panic("not asked for") }

func (c *connection) Commit() error {
	c.note("commit")
	return nil
}

func (c *connection) Rollback() error {
	c.note("rollback")
	return nil
}

func (*connection) Close() error { return nil }

// accepted is the verdict of each dialect.
type accepted struct{}

func (accepted) RowsAffected() (int64, error) { return 1, nil }

func (accepted) LastInsertId() (int64, error) { return 1, nil }

// notFound is MySQL's answer to an UPDATE of no row.
type notFound struct{ accepted }

func (notFound) LastInsertId() (int64, error) { return 0, nil }

// row is an answer of one row.
type row []driver.Value

func (r *row) Columns() []string { return make([]string, len(*r)) }

func (*row) Close() error { return nil }

func (r *row) Next(values []driver.Value) error {
	if *r == nil {
		return io.EOF
	}
	copy(values, *r)
	*r = nil
	return nil
}
