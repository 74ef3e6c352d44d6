package sqltest_test

import (
	"context"
	"database/sql"
)

// beginHook lets something happen just before a transaction begins.
type beginHook struct {
	*sql.DB
	before func()
}

func (h beginHook) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	h.before()
	return h.DB.BeginTx(ctx, opts)
}

// forgetful deletes the registers before each query.
type forgetful struct{ *sql.DB }

func (f forgetful) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if _, err := f.ExecContext(ctx, `DELETE FROM fencelock_guard`); err != nil {
		panic(err)
	}
	return f.DB.QueryRowContext(ctx, query, args...)
}
