package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// BenchmarkWrite is one transaction that updates a row, with each guard and
// without, on a server of this machine that flushes nothing: what remains is the
// guard's own cost at its most visible.
func BenchmarkWrite(b *testing.B) {
	for _, store := range servers.Stores() {
		guard, err := sqlguard.New(store.Dialect)
		require.NoError(b, err)
		for _, c := range []struct {
			name string
			bank bank
		}{
			{"unguarded", unguarded{store.Dialect}},
			{"guard table", guarded{guard, store.Dialect}},
			{"fence column", fenced{store.Dialect}},
		} {
			b.Run(fmt.Sprintf("%s/%s", store.Name, c.name), func(b *testing.B) {
				db := store.Open(b)
				newGuard(b, store, db)
				makeAccounts(b, db, 1)
				f := account(0, 1)
				for b.Loop() {
					f.Token++
					require.NoError(b, c.bank.write(b.Context(), db, 0, int(f.Token), f))
				}
			})
		}
	}
}

// BenchmarkRead is one transaction that selects a row.
func BenchmarkRead(b *testing.B) {
	for _, store := range servers.Stores() {
		b.Run(store.Name+"/unguarded", func(b *testing.B) {
			db := store.Open(b)
			makeAccounts(b, db, 1)
			for b.Loop() {
				_, err := unguarded{store.Dialect}.read(b.Context(), db, 0, fencing.Fence{})
				require.NoError(b, err)
			}
		})
		b.Run(store.Name+"/guard table", func(b *testing.B) {
			db := store.Open(b)
			guard := newGuard(b, store, db)
			makeAccounts(b, db, 1)
			f := read("accounts/0", 1)
			for b.Loop() {
				f.Token++
				require.NoError(b, guard.Do(b.Context(), db, f, func(ctx context.Context, tx *sql.Tx) error {
					_, err := selectBalance(ctx, tx, store.Dialect, 0)
					return err
				}))
			}
		})
	}
}
