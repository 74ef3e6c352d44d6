package sqlguard

import (
	"context"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// changes are the counters that show whether an SQLite connection has written: the changed rows, and, because changes
// of the schema and of the user version do not count as rows, the versions of both.
type changes struct {
	rows     int64
	versions string
}

const selectChanges = `SELECT total_changes(), schema_version || '/' || user_version
FROM pragma_schema_version, pragma_user_version`

// onlyReading runs the work of a read in tx, and returns an error if it has written.
//
// SQLite has no read-only transactions. Its PRAGMA query_only would refuse the write itself, but belongs to the
// connection: database/sql rolls back and gives the connection to the next user at the moment in which the context
// ends, and there is no statement between. So the counters decide, which leave no state behind.
func (g *Guard) onlyReading(ctx context.Context, tx marked, f fencing.Fence, work func() error) error {
	if g.dialect != SQLite {
		return work()
	}
	before, err := changesOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	after, err := changesOf(ctx, tx)
	if err != nil {
		return err
	}
	if after != before {
		if err := g.requireMark(ctx, tx); err != nil {
			return err
		}
		return fmt.Errorf("%w: %v: rolled back", ErrReadOnly, f)
	}
	return nil
}

func changesOf(ctx context.Context, tx marked) (seen changes, err error) {
	if err := tx.QueryRowContext(ctx, selectChanges).Scan(&seen.rows, &seen.versions); err != nil {
		return changes{}, fmt.Errorf("sqlguard: changes of a read: %w", err)
	}
	return seen, nil
}
