package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/internal/joined"
)

// withCause returns err with the cause of ctx's end, if err comes from that end: drivers know no causes, and
// database/sql reports of the commit only that the transaction has been rolled back.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", err, joined.EndOf(ctx))
	}
	return joined.WithCause(ctx, err)
}
