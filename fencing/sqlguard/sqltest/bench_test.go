package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// Benchmark is one transaction that updates a row, or selects it, with each guard and without, on a server of this
// machine that flushes nothing: what remains is the guard's own cost at its most visible.
func Benchmark(b *testing.B) {
	for _, store := range servers.Stores() {
		guard, err := sqlguard.New(store.Dialect)
		require.NoError(b, err)
		set := func(ctx context.Context, tx *sql.Tx) error { return updateBalance(ctx, tx, store.Dialect, 0, 1) }
		get := func(ctx context.Context, tx *sql.Tx) error {
			_, err := selectBalance(ctx, tx, store.Dialect, 0)
			return err
		}
		for _, c := range []struct {
			name   string
			bank   bank
			mode   fencing.Mode
			inside func(fencing.Token) work
		}{
			{"write/unguarded", unguarded, fencing.Write, func(fencing.Token) work { return set }},
			{"write/guard table", guarded(guard), fencing.Write, func(fencing.Token) work { return set }},
			{"write/fence column", unguarded, fencing.Write, func(token fencing.Token) work {
				return func(_ context.Context, tx *sql.Tx) error { return update(b, store.Dialect, tx, 0, int(token), token) }
			}},
			{"read/unguarded", unguarded, fencing.Read, func(fencing.Token) work { return get }},
			{"read/guard table", guarded(guard), fencing.Read, func(fencing.Token) work { return get }},
		} {
			b.Run(store.Name+"/"+c.name, func(b *testing.B) {
				db := store.Open(b)
				newGuard(b, store, db)
				makeAccounts(b, db, 1)
				f := fencing.Fence{Resource: "accounts/0", Token: 1, Mode: c.mode}
				for b.Loop() {
					f.Token++
					require.NoError(b, c.bank(b.Context(), db, f, c.inside(f.Token)))
				}
			})
		}
	}
}
