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

type storeTest = func(*testing.T, sqltest.Store, *sql.DB, *sqlguard.Guard)

// onEveryStore runs a test on each store with a fresh database and guard table.
func onEveryStore(t *testing.T, test storeTest) {
	t.Helper()
	onStores(t, test, "PostgreSQL", "MariaDB", "MySQL", "SQLite")
}

// onEveryServer leaves out SQLite, which has one writer at a time, and so no deadlocks.
func onEveryServer(t *testing.T, test storeTest) {
	t.Helper()
	onStores(t, test, "PostgreSQL", "MariaDB", "MySQL")
}

func onStores(t *testing.T, test storeTest, names ...string) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			store := servers.Store(name)
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

var errUndo = errors.New("undo")

func nothing(context.Context, *sql.Tx) error { return nil }

// unreached is work under a fence that is refused.
func unreached(t *testing.T) work {
	return func(context.Context, *sql.Tx) error {
		t.Error("work ran under a fence that is refused")
		return nil
	}
}

// ownTransaction runs inside in a transaction of db that begins with a check.
func ownTransaction(
	t *testing.T, db *sql.DB, f fencing.Fence, check func(context.Context, sqlguard.Tx, fencing.Fence) error,
	inside work,
) error {
	return unguarded(t.Context(), db, f, func(ctx context.Context, tx *sql.Tx) error {
		if err := check(ctx, tx, f); err != nil {
			return err
		}
		return inside(ctx, tx)
	})
}

// anyFences are up to limit fences of as many resources, of which some are stale.
func anyFences(rng *rand.Rand, limit int) (fences []fencing.Fence) {
	for _, i := range rng.Perm(3)[:1+rng.IntN(limit)] {
		mode := fencing.Mode(1 + rng.IntN(2))
		fences = append(fences, fencing.Fence{Resource: fmt.Sprint(i), Token: fencing.Token(1 + rng.IntN(40)), Mode: mode})
	}
	return fences
}

// Every kind of access against the rule in Go: whether the work runs, what a refusal says, and which registers rise
// unless the work is undone.
func TestRuleAgreesWithTheModel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, db *sql.DB, guard *sqlguard.Guard) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		rounds := 10
		if store.Dialect == sqlguard.SQLite {
			rounds = 100
		}
		for range rounds {
			_, err := db.Exec(`DELETE FROM fencelock_guard`)
			require.NoError(t, err)
			model := map[string]fencing.Registers{}
			for range 60 {
				kind, undo, ran := rng.IntN(4), rng.IntN(4) == 0, false
				fences := anyFences(rng, []int{1, 1, 1, 3}[kind])
				inside := func(context.Context, *sql.Tx) error {
					ran = true
					if undo {
						return errUndo
					}
					return nil
				}
				var got error
				switch kind {
				case 0:
					got = guard.Do(t.Context(), db, fences[0], inside)
				case 1:
					got = ownTransaction(t, db, fences[0], guard.Claim, inside)
				case 2:
					got = ownTransaction(t, db, fences[0], guard.Derive, inside)
				default:
					got = guard.DoAll(t.Context(), db, fences, inside)
				}
				refusals := refusalsOf(model, fences, kind == 2)
				about := fmt.Sprintf("%v kind=%d undo=%t after %v", fences, kind, undo, model)
				require.Equal(t, len(refusals) == 0, ran, about)
				switch {
				case !ran:
					require.Contains(t, refusals, got, about)
				case undo:
					require.ErrorIs(t, got, errUndo, about)
				default:
					require.NoError(t, got, about)
				}
				// A read of Do and DoAll has committed its claims before its work began.
				if ran && kind != 2 && (!undo || kind != 1 && onlyReads(fences)) {
					for _, f := range fences {
						model[f.Resource] = model[f.Resource].Raise(f)
					}
				}
				requireSeen(t, guard, db, map[string]fencing.Registers{"0": model["0"], "1": model["1"], "2": model["2"]})
			}
		}
	})
}

// refusalsOf returns what the refusal of each fence says. Which of several is the first is not promised: where MySQL
// has to make a row before the claims, newer writes refuse before newer reads do.
func refusalsOf(model map[string]fencing.Registers, fences []fencing.Fence, derived bool) (refusals []error) {
	for _, f := range fences {
		if err := model[f.Resource].Check(f); err != nil && !derived {
			refusals = append(refusals, err)
		}
		if err := model[f.Resource].CheckDerived(f); err != nil && (derived || len(fences) > 1) {
			refusals = append(refusals, err)
		}
	}
	return refusals
}

func onlyReads(fences []fencing.Fence) bool {
	return !slices.ContainsFunc(fences, func(f fencing.Fence) bool { return f.Mode == fencing.Write })
}

func requireSeen(t *testing.T, guard *sqlguard.Guard, db *sql.DB, want map[string]fencing.Registers) {
	t.Helper()
	for resource, registers := range want {
		seen, err := guard.Seen(t.Context(), db, resource)
		require.NoError(t, err)
		require.Equal(t, registers, seen, resource)
	}
}
