package fencelock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Each block of Go in README.md is a whole file with its imports, so it compiles as it is pasted.
func TestCodeOfTheReadme(t *testing.T) {
	text := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	var blocks, whole []string
	for _, block := range strings.Split(text("README.md"), "```go\n")[1:] {
		code, _, closed := strings.Cut(block, "```")
		require.True(t, closed)
		blocks = append(blocks, code)
	}
	for _, path := range []string{"readme_deposit_test.go", "readme_forms_test.go"} {
		whole = append(whole, strings.TrimPrefix(text(path), "package fencelock_test\n\n"))
	}
	require.Equal(t, whole, blocks)
}

// And the code of README.md does what it says, where an embedded server can stand in.
func TestReadmeRuns(t *testing.T) {
	server := miniredis.RunT(t)
	locker, err := rwlock.Open("redis://" + server.Addr())
	require.NoError(t, err)
	defer locker.Close()
	calls := 0
	work := func(ctx context.Context) error {
		calls++
		return context.Cause(ctx)
	}
	require.NoError(t, forms(t.Context(), locker, work))
	require.Equal(t, 5, calls)

	row := &account{}
	db := sql.OpenDB(row)
	defer db.Close()
	require.NoError(t, deposit(t.Context(), locker, db, 7))
	require.Equal(t, int64(7), row.balance)
	row.fence += 1 << 40 // a newer holder has written
	require.ErrorIs(t, deposit(t.Context(), locker, db, 7), fencing.ErrStale)
	require.Equal(t, int64(7), row.balance)
}

// account is a database with one row, and the two statements of README.md.
type account struct{ balance, fence int64 }

func (a *account) Connect(context.Context) (driver.Conn, error) { return a, nil }
func (a *account) Driver() driver.Driver                        { return nil }
func (a *account) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (a *account) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (a *account) Close() error                                 { return nil }

func (a *account) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	amount, fence := args[0].Value.(int64), args[1].Value.(int64)
	if a.fence > fence {
		return driver.RowsAffected(0), nil
	}
	a.balance, a.fence = a.balance+amount, fence
	return driver.RowsAffected(1), nil
}

func (a *account) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &found{driver.Value(a.fence)}, nil
}

type found []driver.Value

func (*found) Columns() []string { return []string{"fence"} }
func (*found) Close() error      { return nil }

func (f *found) Next(row []driver.Value) error {
	if len(*f) == 0 {
		return io.EOF
	}
	*f = slices.Delete(*f, 0, copy(row, *f))
	return nil
}
