package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed74116694/fencelock/fencing"
)

// database accepts every claim and counts what it is sent.
type database struct{ sent atomic.Int64 }

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
	c.sent.Add(1)
	return c, nil
}

func (c *connection) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	c.sent.Add(1)
	c.keepMark(args)
	return accepted{}, nil
}

func (c *connection) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.sent.Add(1)
	switch {
	case strings.Contains(query, "current_setting('fencelock.mark'"):
		return &row{driver.Value(c.mark)}, nil
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

func (*connection) Commit() error { return nil }

func (*connection) Rollback() error { return nil }

func (*connection) Close() error { return nil }

// accepted is the verdict of each dialect.
type accepted struct{}

func (accepted) RowsAffected() (int64, error) { return 1, nil }

func (accepted) LastInsertId() (int64, error) { return 1, nil }

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
