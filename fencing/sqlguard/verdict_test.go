package sqlguard_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// reply is a handle that answers every statement with an insert id, and one that answers with an error.
type reply struct {
	id  int64
	err error
	n   *int // counts the statements
}

func (r reply) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	if r.n != nil {
		*r.n++
	}
	return r, r.err
}

func (reply) QueryRowContext(context.Context, string, ...any) *sql.Row { panic("nothing to ask") }

func (reply) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) { panic("no transaction") }

func (r reply) LastInsertId() (int64, error) { return r.id, nil }

func (reply) RowsAffected() (int64, error) { return 1, nil }

// A proxy that drops the insert id, or a server that never evaluated the expression, says nothing: and that is no yes.
func TestMySQLReplyWithoutAVerdict(t *testing.T) {
	guard, err := sqlguard.New(sqlguard.MySQL)
	require.NoError(t, err)
	const token = 7
	for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
		f := fencing.Fence{Resource: "a", Token: token, Mode: mode}
		for name, check := range map[string]func(context.Context, sqlguard.Tx, fencing.Fence) error{
			"claim": guard.Claim, "derive": guard.Derive,
		} {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				for _, id := range []int64{0, -1, -4} {
					require.ErrorIs(t, check(t.Context(), reply{id: id}, f), sqlguard.ErrNoVerdict, "id %d", id)
				}
				require.NoError(t, check(t.Context(), reply{id: 1}, f), "nothing seen")
				require.NoError(t, check(t.Context(), reply{id: token + 1}, f), "the same token seen")
				want := &fencing.StaleError{Resource: "a", Got: token, Seen: token + 1}
				require.Equal(t, want, check(t.Context(), reply{id: token + 2}, f))
			})
		}
	}
}
