package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// onEveryStore runs a test on each store with a fresh database and guard table.
func onEveryStore(t *testing.T, test func(*testing.T, sqltest.Store, *sql.DB, *sqlguard.Guard)) {
	t.Helper()
	onStores(t, servers.Stores(), test)
}

// onEveryServer leaves out SQLite, which has one writer at a time, and so no deadlocks.
func onEveryServer(t *testing.T, test func(*testing.T, sqltest.Store, *sql.DB, *sqlguard.Guard)) {
	t.Helper()
	isFile := func(store sqltest.Store) bool { return store.Dialect == sqlguard.SQLite }
	onStores(t, slices.DeleteFunc(servers.Stores(), isFile), test)
}

func onStores(
	t *testing.T, stores []sqltest.Store, test func(*testing.T, sqltest.Store, *sql.DB, *sqlguard.Guard),
) {
	t.Helper()
	for _, store := range stores {
		t.Run(store.Name, func(t *testing.T) {
			db := store.Open(t)
			test(t, store, db, newGuard(t, store, db))
		})
	}
}

func newGuard(tb testing.TB, store sqltest.Store, db sqlguard.DB) *sqlguard.Guard {
	tb.Helper()
	guard, err := sqlguard.New(store.Dialect)
	require.NoError(tb, err)
	require.NoError(tb, guard.Create(tb.Context(), db))
	return guard
}

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}

// history is the plain model: all accesses that were committed, and a verdict by
// looking at every one of them.
type history []fencing.Fence

func (h history) accepts(f fencing.Fence, derived bool) bool {
	for _, past := range h {
		if past.Token > f.Token && (past.Mode == fencing.Write || f.Mode == fencing.Write && !derived) {
			return false
		}
	}
	return true
}

func (h history) registers() (seen fencing.Registers) {
	for _, past := range h {
		seen = seen.Raise(past)
	}
	return seen
}

var errUndo = errors.New("undo")

// step makes one access in the way that kind says; undo rolls it back. It returns
// whether the access ran.
func step(t *testing.T, db *sql.DB, guard *sqlguard.Guard, kind int, f fencing.Fence, undo bool) (bool, error) {
	ran := false
	work := func(context.Context, *sql.Tx) error {
		ran = true
		if undo {
			return errUndo
		}
		return nil
	}
	own := func(check func(context.Context, sqlguard.Tx, fencing.Fence) error) error {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := check(t.Context(), tx, f); err != nil {
			return err
		}
		if err := work(t.Context(), tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	switch kind {
	case 0:
		return ran, guard.Do(t.Context(), db, f, work)
	case 1:
		err := own(guard.Claim)
		return ran, err
	default:
		err := own(guard.Derive)
		return ran, err
	}
}

func TestRuleAgreesWithTheModel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		rounds := 10
		if store.Dialect == sqlguard.SQLite {
			rounds = 100
		}
		for round := range rounds {
			model := map[string]history{}
			for range 60 {
				f := read(fmt.Sprintf("%d/%d", round, rng.IntN(3)), fencing.Token(1+rng.IntN(40)))
				if rng.IntN(2) == 0 {
					f.Mode = fencing.Write
				}
				kind, undo := rng.IntN(3), rng.IntN(4) == 0
				past, derived := model[f.Resource], kind == 2

				ran, err := step(t, db, guard, kind, f, undo)
				about := fmt.Sprintf("%v kind=%d undo=%t after %v", f, kind, undo, past)
				require.Equal(t, past.accepts(f, derived), ran, about)
				switch {
				case !ran:
					requireStale(t, err, f, past.registers(), derived)
				case undo:
					require.ErrorIs(t, err, errUndo, about)
				default:
					require.NoError(t, err, about)
				}
				// A read of Do has committed its claim before its work began.
				committed := ran && (!undo || kind == 0 && f.Mode == fencing.Read)
				if committed && !derived {
					model[f.Resource] = append(past, f)
				}
				seen, err := guard.Seen(t.Context(), db, f.Resource)
				require.NoError(t, err)
				require.Equal(t, model[f.Resource].registers(), seen, about)
			}
		}
	})
}

// requireStale also asks for the same numbers as the rule of package fencing gives.
func requireStale(t *testing.T, err error, f fencing.Fence, seen fencing.Registers, derived bool) {
	t.Helper()
	want := seen.Check(f)
	if derived {
		want = seen.CheckDerived(f)
	}
	require.ErrorIs(t, err, fencing.ErrStale)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, want, error(stale))
}

func TestInvalidFencesAreRefusedUnsent(t *testing.T) {
	guard, err := sqlguard.New(sqlguard.SQLite)
	require.NoError(t, err)
	db := servers.Store("SQLite").Open(t) // no guard table in it
	work := func(context.Context, *sql.Tx) error { t.Error("work ran"); return nil }
	for name, c := range map[string]struct {
		fence fencing.Fence
		want  error
	}{
		"no token":      {write("a", 0), fencing.ErrMissing},
		"no mode":       {fencing.Fence{Resource: "a", Token: 1}, fencing.ErrMalformed},
		"no resource":   {write("", 1), fencing.ErrMalformed},
		"not UTF-8":     {read("\xff", 1), fencing.ErrMalformed},
		"token too big": {read("a", fencing.MaxToken+1), fencing.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, guard.Do(t.Context(), db, c.fence, work), c.want)
			require.ErrorIs(t, guard.Claim(t.Context(), db, c.fence), c.want)
			require.ErrorIs(t, guard.Derive(t.Context(), db, c.fence), c.want)
			_, _, err := guard.Statement(c.fence)
			require.ErrorIs(t, err, c.want)
		})
	}
}
