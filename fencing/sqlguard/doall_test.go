package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

func TestFencesThatAreRefused(t *testing.T) {
	a, b := fence("a", fencing.Write), fence("b", fencing.Read)
	onEveryDialect(t, func(t *testing.T, d *database, db *sql.DB, guard *sqlguard.Guard) {
		work := func(context.Context, *sql.Tx) error {
			t.Error("work ran")
			return nil
		}
		for name, c := range map[string]struct {
			fences []fencing.Fence
			want   error
			text   string
		}{
			"none":          {nil, sqlguard.ErrOption, "no fences"},
			"twice":         {[]fencing.Fence{a, b, a}, sqlguard.ErrOption, `"a"`},
			"in both modes": {[]fencing.Fence{b, fence("b", fencing.Write)}, sqlguard.ErrOption, `"b"`},
			"no token":      {[]fencing.Fence{a, {Resource: "c", Mode: fencing.Read}}, fencing.ErrMissing, `"c"`},
			"no mode":       {[]fencing.Fence{a, fence("b", 0)}, fencing.ErrMalformed, "mode"},
		} {
			err := guard.DoAll(t.Context(), db, c.fences, work)
			require.ErrorIs(t, err, c.want, name)
			require.ErrorContains(t, err, c.text, name)
		}
		for method, err := range calls(t, guard, db, fence("", fencing.Read), work) {
			require.ErrorIs(t, err, fencing.ErrMalformed, method)
		}
		for method, err := range calls(t, new(sqlguard.Guard), db, a, work) {
			require.ErrorIs(t, err, sqlguard.ErrOption, method)
			require.ErrorContains(t, err, "make it with New", method)
		}
		_, seen := new(sqlguard.Guard).Seen(t.Context(), db, "a")
		require.ErrorIs(t, seen, sqlguard.ErrOption)
		require.ErrorIs(t, new(sqlguard.Guard).Create(t.Context(), db), sqlguard.ErrOption)
		require.ErrorIs(t, guard.Do(t.Context(), db, a, nil), sqlguard.ErrOption)
		require.ErrorIs(t, guard.Do(t.Context(), db, b, nil), sqlguard.ErrOption, "the claim of a read would be committed")
		require.Zero(t, d.sent.Load())
	})
	require.Empty(t, new(sqlguard.Guard).Schema())
}

// calls are what each method says of a fence.
func calls(
	t *testing.T, guard *sqlguard.Guard, db *sql.DB, f fencing.Fence, work func(context.Context, *sql.Tx) error,
) map[string]error {
	_, _, statement := guard.Statement(f)
	return map[string]error{
		"Do": guard.Do(t.Context(), db, f, work), "Claim": guard.Claim(t.Context(), db, f),
		"Derive": guard.Derive(t.Context(), db, f), "Statement": statement,
	}
}

// Each resource of a section is locked, also one that is only read, unless all are.
func TestEachResourceOfDoAllIsInside(t *testing.T) {
	onEveryDialect(t, func(t *testing.T, d *database, db *sql.DB, guard *sqlguard.Guard) {
		ways := claiming(t, guard, db)
		mixed := []fencing.Fence{fence("b", fencing.Write), fence("a", fencing.Read), fence("c", fencing.Write)}
		err := guard.DoAll(t.Context(), db, mixed, func(ctx context.Context, _ *sql.Tx) error {
			sent := d.sent.Load()
			for name, claim := range ways {
				for _, resource := range []string{"a", "b", "c"} {
					err := claim(ctx, resource)
					require.ErrorIs(t, err, sqlguard.ErrNested, name)
					require.ErrorContains(t, err, `"`+resource+`"`, name)
				}
			}
			others := []fencing.Fence{fence("x", fencing.Write), fence("b", fencing.Write)}
			require.ErrorIs(t, guard.DoAll(ctx, db, others, nothing), sqlguard.ErrNested)
			require.Equal(t, sent, d.sent.Load())
			return guard.DoAll(ctx, db, others[:1], nothing)
		})
		require.NoError(t, err)

		reads := []fencing.Fence{fence("b", fencing.Read), fence("a", fencing.Read)}
		require.NoError(t, guard.DoAll(t.Context(), db, reads, func(ctx context.Context, _ *sql.Tx) error {
			return guard.DoAll(ctx, db, mixed, nothing)
		}))
	})
}

// statements runs fences of these modes, for resources in descending order, and returns what was sent: the resource of
// each claim and of each check of a snapshot, and a word for anything else.
func statements(t *testing.T, dialect sqlguard.Dialect, modes ...fencing.Mode) string {
	t.Helper()
	guard := expect.NoError(sqlguard.New(dialect)).In(t)
	var d database
	var fences []fencing.Fence
	for i, mode := range slices.Backward(modes) {
		fences = append(fences, fence(fmt.Sprint("r", i), mode))
	}
	given := slices.Clone(fences)
	db := d.open(t)
	require.NoError(t, guard.DoAll(t.Context(), db, fences, func(context.Context, *sql.Tx) error {
		d.note("work")
		return nil
	}))
	require.Equal(t, given, fences, "the caller's slice is left alone")
	return strings.Join(d.log, " ")
}

// What is sent for the check is a statement for each fence, in the order of the resources, and what Do sends.
func TestStatementsOfDo(t *testing.T) {
	const r, w = fencing.Read, fencing.Write
	for _, c := range []struct {
		dialect sqlguard.Dialect
		modes   []fencing.Mode
		want    string
	}{
		{sqlguard.PostgreSQL, []fencing.Mode{w}, "begin r0 work mark commit"},
		{sqlguard.PostgreSQL, []fencing.Mode{w, r, w}, "begin r0 r1 r2 work mark commit"},
		{sqlguard.PostgreSQL, []fencing.Mode{r}, "r0 begin r0 work mark commit"},
		{sqlguard.PostgreSQL, []fencing.Mode{r, r}, "begin r0 r1 mark commit begin r0 r1 work mark commit"},
		{sqlguard.MySQL, []fencing.Mode{w}, "begin r0 mark work mark commit"},
		{sqlguard.MySQL, []fencing.Mode{r, w}, "begin r0 r1 mark work mark commit"},
		{sqlguard.MySQL, []fencing.Mode{r}, "begin r0 commit begin r0 mark work mark commit"},
		{sqlguard.MySQL, []fencing.Mode{r, r}, "begin r0 r1 mark mark commit begin r0 r1 mark work mark commit"},
		{sqlguard.SQLite, []fencing.Mode{w}, "begin r0 mark work mark commit"},
		{sqlguard.SQLite, []fencing.Mode{w, r}, "begin r0 r1 mark work mark commit"},
		{sqlguard.SQLite, []fencing.Mode{r}, "r0 begin r0 mark changes work changes mark commit"},
	} {
		t.Run(fmt.Sprint(c.dialect, c.modes), func(t *testing.T) {
			require.Equal(t, c.want, statements(t, c.dialect, c.modes...))
		})
	}
}

// Work that fails is rolled back. In MySQL a lock that could not be had ends the transaction if the server is set so:
// the mark tells it, and the server's list of errors tells whether the work went on.
func TestStatementsOfWorkThatFails(t *testing.T) {
	timeout, own := &fieldState{Number: 1205}, errors.New("own")
	for name, c := range map[string]struct {
		dialect  sqlguard.Dialect
		returned error
		marked   bool
		shown    row
		want     string
		ended    bool
	}{
		"own, PostgreSQL": {sqlguard.PostgreSQL, own, true, nil, "begin r work mark rollback", false},
		"own, MySQL":      {sqlguard.MySQL, own, true, nil, "begin r mark work mark rollback", false},
		"own, SQLite":     {sqlguard.SQLite, own, true, nil, "begin r mark work mark rollback", false},
		"a statement that was rolled back": {
			sqlguard.MySQL, timeout, true, row{"Error", int64(1205), "text"}, "begin r mark work errors mark rollback", false,
		},
		"a transaction that was": {
			sqlguard.MySQL, timeout, false, row{"Error", int64(1205), "text"}, "begin r mark work errors rollback", false,
		},
		"and then another statement": {sqlguard.MySQL, timeout, false, nil, "begin r mark work errors rollback", true},
		"that failed": {
			sqlguard.MySQL, timeout, false, row{"Error", int64(1062), "text"}, "begin r mark work errors rollback", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			guard := expect.NoError(sqlguard.New(c.dialect)).In(t)
			d := database{shown: c.shown, failure: field("42000")}
			if !c.marked {
				d.failing = 5 // begin, claim, mark, errors, and the mark again
			}
			err := guard.Do(t.Context(), d.open(t), fence("r", fencing.Write), func(context.Context, *sql.Tx) error {
				d.note("work")
				return c.returned
			})
			require.ErrorIs(t, err, c.returned)
			require.Equal(t, c.ended, errors.Is(err, sqlguard.ErrTransactionEnded), "%v", err)
			require.Equal(t, c.want, strings.Join(d.log, " "))
		})
	}
}

// A row that MySQL would have to insert is made before, in a transaction of its own.
func TestMissingRowsAreMadeBefore(t *testing.T) {
	guard := expect.NoError(sqlguard.New(sqlguard.MySQL)).In(t)
	for _, modes := range [][2]fencing.Mode{{fencing.Write, fencing.Read}, {fencing.Read, fencing.Read}} {
		d := database{missing: map[string]bool{"b": true}}
		db := d.open(t)
		fences := []fencing.Fence{fence("a", modes[0]), fence("b", modes[1])}
		require.NoError(t, guard.DoAll(t.Context(), db, fences, nothing))
		require.Equal(t, "begin a b rollback begin a commit begin b commit begin a b mark mark commit",
			strings.Join(d.log[:16], " "))
	}
}

// Wherever a statement fails, the transaction that was begun ends, and the connection is free. A conflict before the
// work is retried, any other failure and each later one is returned.
func TestAStatementThatFailsEndsItsTransaction(t *testing.T) {
	for _, fences := range [][]fencing.Fence{
		{fence("a", fencing.Write)},
		{fence("a", fencing.Read)},
		{fence("a", fencing.Write), fence("b", fencing.Read), fence("c", fencing.Write)},
		{fence("a", fencing.Read), fence("b", fencing.Read)},
	} {
		for _, failure := range []error{methodState("40001"), errors.New("the connection is gone")} {
			onEveryDialect(t, func(t *testing.T, _ *database, _ *sql.DB, guard *sqlguard.Guard) {
				if sqlguard.IsConflict(failure) && strings.Contains(t.Name(), "SQLite") {
					return // it has no conflicts
				}
				whole, before := database{}, 0
				require.NoError(t, guard.DoAll(t.Context(), whole.open(t), fences, func(context.Context, *sql.Tx) error {
					before = int(whole.sent.Load())
					return nil
				}))
				for at := 1; at <= int(whole.sent.Load()); at++ {
					d := database{failing: at, failure: failure}
					db, ran := d.open(t), false
					err := guard.DoAll(t.Context(), db, fences, func(context.Context, *sql.Tx) error {
						ran = true
						return nil
					})
					require.Zero(t, db.Stats().InUse)
					require.Equal(t, count(d.log, "begin"), count(d.log, "commit")+count(d.log, "rollback"), "%v", d.log)
					if retried := at <= before && sqlguard.IsConflict(failure); retried {
						require.NoError(t, err)
						require.True(t, ran)
						continue
					}
					require.ErrorIs(t, err, failure)
					require.NotErrorIs(t, err, sqlguard.ErrInTransaction)
					require.Equal(t, at > before, ran)
				}
			})
		}
	}
}

func count(log []string, word string) (n int) {
	for _, found := range log {
		if found == word {
			n++
		}
	}
	return n
}

func fence(resource string, mode fencing.Mode) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: 7, Mode: mode}
}

func nothing(context.Context, *sql.Tx) error { return nil }

// claiming are the ways to claim a resource in another transaction than that of the section.
func claiming(t *testing.T, guard *sqlguard.Guard, db *sql.DB) map[string]func(context.Context, string) error {
	conn := expect.NoError(db.Conn(t.Context())).In(t)
	t.Cleanup(func() { _ = conn.Close() })
	other := expect.NoError(db.BeginTx(t.Context(), nil)).In(t)
	t.Cleanup(func() { _ = other.Rollback() })
	do := func(db sqlguard.DB, mode fencing.Mode) func(context.Context, string) error {
		return func(ctx context.Context, resource string) error {
			return guard.Do(ctx, db, fence(resource, mode), nothing)
		}
	}
	claim := func(tx sqlguard.Tx, mode fencing.Mode) func(context.Context, string) error {
		return func(ctx context.Context, resource string) error { return guard.Claim(ctx, tx, fence(resource, mode)) }
	}
	return map[string]func(context.Context, string) error{
		"write": do(db, fencing.Write), "read": do(db, fencing.Read), "by a connection": do(conn, fencing.Write),
		"claim": claim(db, fencing.Write), "claim of a read": claim(db, fencing.Read),
		"claim of another transaction": claim(other, fencing.Write),
		"derive": func(ctx context.Context, resource string) error {
			return guard.Derive(ctx, db, fence(resource, fencing.Read))
		},
	}
}

func onEveryDialect(t *testing.T, test func(*testing.T, *database, *sql.DB, *sqlguard.Guard)) {
	t.Helper()
	for _, dialect := range dialects {
		t.Run(dialect.String(), func(t *testing.T) {
			guard := expect.NoError(sqlguard.New(dialect)).In(t)
			var d database
			test(t, &d, d.open(t), guard)
		})
	}
}

// Whoever claims a resource inside its own write would wait for itself.
func TestClaimInsideItsOwnWriteIsRefused(t *testing.T) {
	onEveryDialect(t, func(t *testing.T, d *database, db *sql.DB, guard *sqlguard.Guard) {
		ways := claiming(t, guard, db)
		err := guard.Do(t.Context(), db, fence("a", fencing.Write), func(inA context.Context, _ *sql.Tx) error {
			for name, claim := range ways {
				require.NoError(t, claim(inA, "b"), "another resource: %s", name)
			}
			return guard.Do(inA, db, fence("b", fencing.Write), func(inB context.Context, _ *sql.Tx) error {
				sent := d.sent.Load()
				for name, claim := range ways {
					for _, ctx := range []context.Context{inB, context.WithoutCancel(inB)} {
						err := claim(ctx, "a")
						require.ErrorIs(t, err, sqlguard.ErrNested, name)
						require.ErrorContains(t, err, `"a"`)
						require.ErrorContains(t, err, "fencelock_guard")
						require.ErrorIs(t, claim(ctx, "b"), sqlguard.ErrNested, name)
					}
				}
				require.Equal(t, sent, d.sent.Load(), "nothing is sent")
				return nil
			})
		})
		require.NoError(t, err)
	})
}

func TestWhatIsNotNested(t *testing.T) {
	onEveryDialect(t, func(t *testing.T, _ *database, db *sql.DB, guard *sqlguard.Guard) {
		ways := claiming(t, guard, db)
		var over context.Context
		require.NoError(t, guard.Do(t.Context(), db, fence("a", fencing.Write), func(ctx context.Context, tx *sql.Tx) error {
			over = context.WithoutCancel(ctx)
			require.NoError(t, guard.Claim(ctx, tx, fence("a", fencing.Write)), "the same transaction")
			require.NoError(t, guard.Claim(ctx, struct{ *sql.Tx }{tx}, fence("a", fencing.Write)), "perhaps the same")
			for name, claim := range ways {
				require.NoError(t, claim(t.Context(), "a"), "the context from outside: %s", name)
			}
			return nil
		}))
		require.NoError(t, guard.Do(t.Context(), db, fence("a", fencing.Read), func(ctx context.Context, _ *sql.Tx) error {
			for name, claim := range ways {
				require.NoError(t, claim(ctx, "a"), "a read locks no row: %s", name)
				require.NoError(t, claim(over, "a"), "the write is over: %s", name)
			}
			return nil
		}))
	})
}

// The name of the table stands for the database.
func TestAnotherGuardOfTheSameTable(t *testing.T) {
	for _, dialect := range dialects {
		guard := func(dialect sqlguard.Dialect, table string) *sqlguard.Guard {
			return expect.NoError(sqlguard.New(dialect, sqlguard.WithTable(table))).In(t)
		}
		db, f := new(database).open(t), fence("a", fencing.Write)
		err := guard(dialect, "one").Do(t.Context(), db, f, func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, guard(dialect, "other").Do(ctx, db, f, nothing))
			require.NoError(t, guard(dialects[int(dialect)%len(dialects)], "one").Do(ctx, db, f, nothing))
			return guard(dialect, "one").Do(ctx, new(database).open(t), f, nothing)
		})
		require.ErrorIs(t, err, sqlguard.ErrNested)
	}
}
