package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/internal/joined"
)

// withCause returns err with why ctx has ended, where that is what err is about: drivers know no causes, and
// database/sql says of the commit only that the transaction has been rolled back.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", err, joined.EndOf(ctx))
	}
	return joined.WithCause(ctx, err)
}
