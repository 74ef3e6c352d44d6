package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
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

func (d *database) Connect(context.Context) (driver.Conn, error) { return connection{d}, nil }

func (*database) Driver() driver.Driver { panic("not asked for") }

type connection struct{ *database }

func (c connection) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	c.sent.Add(1)
	return c, nil
}

func (c connection) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	c.sent.Add(1)
	return accepted{}, nil
}

func (c connection) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.sent.Add(1)
	return &registers{}, nil
}

func (connection) Prepare(string) (driver.Stmt, error) { panic("not asked for") }

func (connection) Begin() (driver.Tx, error) { panic("not asked for") }

func (connection) Commit() error { return nil }

func (connection) Rollback() error { return nil }

func (connection) Close() error { return nil }

// accepted is the verdict of each dialect.
type accepted struct{}

func (accepted) RowsAffected() (int64, error) { return 1, nil }

func (accepted) LastInsertId() (int64, error) { return 1, nil }

// registers are those of a resource that has been read and never written.
type registers struct{ read bool }

func (*registers) Columns() []string { return []string{"max_write", "max_read"} }

func (*registers) Close() error { return nil }

func (r *registers) Next(row []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, row[0], row[1] = true, int64(0), int64(fencing.MaxToken)
	return nil
}
