package sqltest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// router sends read-only transactions to a replica, as proxies and some handles do.
type router struct {
	*sql.DB
	replica *sql.DB
}

func (r router) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if opts != nil && opts.ReadOnly {
		return r.replica.BeginTx(ctx, opts)
	}
	return r.DB.BeginTx(ctx, opts)
}

// A second database plays the replica, so that the test decides how far it is behind.
func TestReadOnAReplicaThatLags(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, primary *sql.DB, guard *sqlguard.Guard) {
		replica := store.Open(t)
		require.NoError(t, guard.Create(t.Context(), replica))
		db := router{primary, replica}
		require.NoError(t, guard.Do(t.Context(), db, write("a", 10), nothing))

		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 11), unreached(t)), sqlguard.ErrClaimNotVisible)

		// The write has arrived, and the claim has not: a later write may be missing just as well.
		require.NoError(t, guard.Claim(t.Context(), replica, write("a", 10)))
		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 11), unreached(t)), sqlguard.ErrClaimNotVisible)

		require.NoError(t, guard.Claim(t.Context(), replica, read("a", 11)))
		require.NoError(t, guard.Do(t.Context(), db, read("a", 11), nothing))
	})
}
