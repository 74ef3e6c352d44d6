package sqltest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// An older holder has begun at one node. A newer one writes at the other node, which the first one hears of while the
// older one commits. The lock of the guard row is held at one node only, and the older holder's token is in the row
// already: its commit has to fail all the same.
func TestOlderHolderAtAnotherNode(t *testing.T) {
	nodes := servers.Galera(t)
	db := nodes[0]
	guard, err := sqlguard.New(sqlguard.MySQL)
	require.NoError(t, err)
	require.NoError(t, guard.Create(t.Context(), db))
	for _, table := range []string{"written", "gate"} {
		_, err := db.Exec(`CREATE TABLE ` + table + ` (token BIGINT PRIMARY KEY)`)
		require.NoError(t, err)
	}
	insert := func(token fencing.Token) work {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO written VALUES (?)`, token)
			return err
		}
	}
	for i, c := range []struct {
		name  string
		older func(name string, token fencing.Token, inside work) error
	}{
		{"Do", func(name string, token fencing.Token, inside work) error {
			return guard.Do(t.Context(), db, write(name, token), inside)
		}},
		{"DoAll, with a read beside the write", func(name string, token fencing.Token, inside work) error {
			return guard.DoAll(t.Context(), db, []fencing.Fence{read(name, token), write("other", token)}, inside)
		}},
		{"Claim of a write", func(name string, token fencing.Token, inside work) error {
			return ownTransaction(t, db, write(name, token), guard.Claim, inside)
		}},
		{"Claim of a read", func(name string, token fencing.Token, inside work) error {
			return ownTransaction(t, db, read(name, token), guard.Claim, inside)
		}},
		{"Derive", func(name string, token fencing.Token, inside work) error {
			return ownTransaction(t, db, read(name, token), guard.Derive, inside)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			token := fencing.Token(10 * (i + 1))
			require.NoError(t, c.older(c.name, token, nothing), "its token is in the row from here on")
			require.Eventually(t, func() bool {
				seen, err := guard.Seen(t.Context(), nodes[1], c.name)
				own, _ := guard.Seen(t.Context(), db, c.name)
				return err == nil && seen == own
			}, eventLimit, time.Millisecond, "the other node has heard of it")

			err := c.older(c.name, token, func(ctx context.Context, tx *sql.Tx) error {
				open := holdReplication(t, nodes, i)
				go open()
				require.NoError(t, guard.Do(t.Context(), nodes[1], write(c.name, token+1), insert(token+1)))
				return insert(token)(ctx, tx)
			})
			require.True(t, sqlguard.IsConflict(err), "%v", err)
			var stale *fencing.StaleError
			require.ErrorAs(t, c.older(c.name, token, nothing), &stale)
			var n int
			require.NoError(t, db.QueryRow(`SELECT count(*) FROM written WHERE token = ?`, token).Scan(&n))
			require.Zero(t, n, "a stale write")
		})
	}
}

// holdReplication keeps the first node from doing what the other one has done, by a lock on a table that the other one
// writes to now. What it returns waits for a COMMIT at the first node, and lets go.
func holdReplication(t *testing.T, nodes [2]*sql.DB, row int) (open func()) {
	lock, err := nodes[0].Conn(t.Context())
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), `LOCK TABLES gate READ`)
	require.NoError(t, err)
	_, err = nodes[1].ExecContext(t.Context(), `INSERT INTO gate VALUES (?)`, row)
	require.NoError(t, err)
	return func() {
		defer func() { _ = lock.Close() }()
		for n := 0; n == 0 && t.Context().Err() == nil; {
			_ = nodes[0].QueryRowContext(t.Context(), `SELECT count(*) FROM information_schema.processlist
				WHERE db = database() AND info = 'COMMIT'`).Scan(&n)
		}
		_, _ = lock.ExecContext(t.Context(), `UNLOCK TABLES`)
	}
}
