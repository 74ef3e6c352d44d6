package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

// How the guards behave on real databases is tested in the module sqltest. Here is what needs none.

var dialects = []sqlguard.Dialect{sqlguard.PostgreSQL, sqlguard.MySQL, sqlguard.SQLite}

func TestDialects(t *testing.T) {
	names := []string{"PostgreSQL", "MySQL", "SQLite"}
	for i, d := range dialects {
		require.Equal(t, names[i], d.String())
	}
	for _, d := range []sqlguard.Dialect{0, 4, 255} {
		_, err := sqlguard.New(d)
		require.ErrorIs(t, err, sqlguard.ErrOption)
		require.ErrorContains(t, err, d.String())
	}
	_, err := sqlguard.New(sqlguard.SQLite, nil)
	require.ErrorIs(t, err, sqlguard.ErrOption)
}

var badTables = []string{
	"", ".", "a.", ".a", "a.b.c", "a..b", "1a", "A", "fencelock_Guard", "a b", "a-b", "é", "a\n", "\na", "a\x00",
	`a"`, "a`", "a'", "a;", "a; DROP TABLE users", `a" (x); --`, "a`; --", "a/**/b", "a$b", "a.1b", "{table}", ":token",
	strings.Repeat("a", 64), "a." + strings.Repeat("a", 64),
}

func TestTablesThatAreRefused(t *testing.T) {
	for _, d := range dialects {
		for _, name := range badTables {
			_, err := sqlguard.New(d, sqlguard.WithTable(name))
			require.ErrorIs(t, err, sqlguard.ErrTable, "%q", name)
		}
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range append(badTables, "a", "a.b", "_", "fencelock_guard", "select") {
		f.Add(name)
	}
	fence := fencing.Fence{Resource: "r", Token: 1, Mode: fencing.Write}
	f.Fuzz(func(t *testing.T, name string) {
		for _, d := range dialects {
			guard, err := sqlguard.New(d, sqlguard.WithTable(name))
			if err != nil {
				require.ErrorIs(t, err, sqlguard.ErrTable)
				continue
			}
			plain := expect.NoError(sqlguard.New(d)).In(t)
			// The name is one quoted identifier or two, and changes nothing else.
			require.Equal(t, tableless(plain.Schema()), tableless(guard.Schema()))
			one, _, err := plain.Statement(fence)
			require.NoError(t, err)
			other, _, err := guard.Statement(fence)
			require.NoError(t, err)
			require.Equal(t, tableless(one), tableless(other))
		}
	})
}

var quoted = regexp.MustCompile("([\"`])[a-z_][a-z0-9_]*([\"`])(\\.[\"`][a-z_][a-z0-9_]*[\"`])?")

func tableless(statement string) string { return quoted.ReplaceAllString(statement, "(table)") }

func TestStatementCarriesItsArguments(t *testing.T) {
	const resource = "it's a :token"
	for _, d := range dialects {
		for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
			guard := expect.NoError(sqlguard.New(d)).In(t)
			query, args, err := guard.Statement(fencing.Fence{Resource: resource, Token: 7, Mode: mode})
			require.NoError(t, err)
			want := []any{[]byte(resource), int64(7)}
			if d == sqlguard.MySQL { // once for each placeholder; that of a read is counted
				want = map[fencing.Mode][]any{
					fencing.Read:  {want[0], want[1], int64(1), want[1], want[1]},
					fencing.Write: {want[0], want[1], want[1], want[1]},
				}[mode]
			}
			require.Equal(t, want, args)
			require.NotRegexp(t, `[:{]`, query, "a parameter is left over")
		}
	}
}

// A lease that is lost ends its context with the loss as the cause, which the error tells wherever Do was by then.
func TestTheErrorTellsWhyTheContextHasEnded(t *testing.T) {
	lost := &fencing.LostError{Resource: "orders/42", Token: 7, Reason: "expired"}
	for _, dialect := range dialects {
		for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
			t.Run(dialect.String()+", "+mode.String(), func(t *testing.T) {
				guard := expect.NoError(sqlguard.New(dialect)).In(t)
				var d database
				db, f := d.open(t), fencing.Fence{Resource: "orders/42", Token: 7, Mode: mode}
				ctx, lose := context.WithCancelCause(t.Context())
				err := guard.Do(ctx, db, f, func(context.Context, *sql.Tx) error {
					lose(lost)
					return nil
				})
				require.ErrorIs(t, err, fencing.ErrLost)
				require.ErrorContains(t, err, lost.Error())

				_, seen := guard.Seen(ctx, db, "orders/42")
				for name, err := range map[string]error{
					"Do":     guard.Do(ctx, db, f, nothing),
					"Claim":  guard.Claim(ctx, db, f),
					"Derive": guard.Derive(ctx, db, f),
					"Seen":   seen,
				} {
					require.ErrorIs(t, err, context.Canceled, name)
					require.ErrorIs(t, err, fencing.ErrLost, name)
				}
			})
		}
	}
}

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
	guard := expect.NoError(sqlguard.New(sqlguard.MySQL)).In(t)
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

// methodState is an error as those of pgx and lib/pq.
type methodState string

func (methodState) Error() string      { return "by method" }
func (s methodState) SQLState() string { return string(s) }

// fieldState is an error as those of go-sql-driver/mysql.
type fieldState struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (*fieldState) Error() string { return "by field" }

func field(state string) error {
	var e fieldState
	copy(e.SQLState[:], state)
	return &e
}

// otherField has a field of this name that is something else.
type otherField struct{ SQLState int }

func (otherField) Error() string { return "another thing" }

func TestIsConflict(t *testing.T) {
	general := [5]byte([]byte("HY000"))
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                   {nil, false},
		"serialization failure": {methodState("40001"), true},
		"deadlock, PostgreSQL":  {methodState("40P01"), true},
		"deadlock, MySQL":       {field("40001"), true},
		"group replication":     {field("40000"), true},
		"deadlock at a commit":  {&fieldState{1180, general, "Got error 149 - 'Lock deadlock' during COMMIT"}, true},
		"savepoint gone":        {&fieldState{1030, general, "Got error 153 - 'No savepoint' from storage engine"}, true},
		"engine failure":        {&fieldState{1030, general, "Got error 28 - 'No space left' from storage engine"}, false},
		"failure of a commit":   {&fieldState{1180, general, "Got error 6 - 'No such device' during COMMIT"}, false},
		"unknown outcome":       {methodState("40003"), false},
		"unique violation":      {methodState("23505"), false},
		"lock wait timeout":     {field("HY000"), false},
		"record changed":        {&fieldState{1020, general, ""}, true},
		"another number":        {&fieldState{1205, general, ""}, false},
		"wrapped":               {fmt.Errorf("work: %w", field("40001")), true},
		"joined":                {errors.Join(errors.New("rollback"), methodState("40001")), true},
		"no state":              {errors.New("40001"), false},
		"another field":         {otherField{40001}, false},
		"nil pointer":           {(*fieldState)(nil), false},
		"ended inside the work": {fmt.Errorf("%w: %w", sqlguard.ErrTransactionEnded, field("40001")), false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, sqlguard.IsConflict(c.err)) })
	}
}

func TestConflictsBeforeTheWorkAreRetriedNotForEver(t *testing.T) {
	guard := expect.NoError(sqlguard.New(sqlguard.PostgreSQL)).In(t)
	work := func(context.Context, *sql.Tx) error { t.Error("work ran"); return nil }
	do := func(ctx context.Context, err error) (tries int, got error) {
		f := fencing.Fence{Resource: "a", Token: 7, Mode: fencing.Read}
		got = guard.Do(ctx, reply{err: err, n: &tries}, f, work)
		return tries, got
	}
	synctest.Test(t, func(t *testing.T) {
		tries, err := do(t.Context(), field("40001"))
		require.True(t, sqlguard.IsConflict(err))
		require.Equal(t, 11, tries)

		tries, err = do(t.Context(), field("42000"))
		require.Error(t, err)
		require.Equal(t, 1, tries, "no conflict")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		tries, err = do(ended, field("40001"))
		require.True(t, sqlguard.IsConflict(err))
		require.Equal(t, 1, tries, "nobody waits any more")
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
