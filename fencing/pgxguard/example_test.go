package pgxguard_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/pgxguard"
)

// imports stores the rows of a file, under the lock of that file.
type imports struct {
	pool  *pgxpool.Pool
	guard *pgxguard.Guard
}

func (i imports) store(ctx context.Context, file string, rows [][]any) error {
	fence, err := fencing.Require(ctx, file)
	if err != nil {
		return err
	}
	return i.guard.Do(ctx, i.pool, fence, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM postings WHERE file = $1`, file); err != nil {
			return err
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"postings"}, []string{"file", "line", "amount"}, pgx.CopyFromRows(rows))
		return err
	})
}

// A file is imported again and again, each time as a whole. The import of a holder that was paused is refused, and what
// it had copied until then is rolled back. The test beside it runs it.
func Example_copyFrom() {
	_ = imports.store
}

// A transfer between two accounts, under the locks of both.
func ExampleGuard_DoAll() {
	_ = func(ctx context.Context, pool *pgxpool.Pool, guard *pgxguard.Guard, source, target fencing.Fence) error {
		return guard.DoAll(ctx, pool, []fencing.Fence{source, target}, func(ctx context.Context, tx pgx.Tx) error {
			batch := new(pgx.Batch)
			batch.Queue(`UPDATE accounts SET balance = balance - 10 WHERE id = 7`)
			batch.Queue(`UPDATE accounts SET balance = balance + 10 WHERE id = 8`)
			return tx.SendBatch(ctx, batch).Close()
		})
	}
}
