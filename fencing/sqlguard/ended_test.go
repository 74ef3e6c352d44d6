package sqlguard_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// A lease that is lost ends its context with the loss as the cause, which the error tells wherever Do was by then.
func TestTheErrorTellsWhyTheContextHasEnded(t *testing.T) {
	lost := &fencing.LostError{Resource: "orders/42", Token: 7, Reason: "expired"}
	for _, dialect := range dialects {
		for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
			t.Run(dialect.String()+", "+mode.String(), func(t *testing.T) {
				guard, err := sqlguard.New(dialect)
				require.NoError(t, err)
				var d database
				db, f := d.open(t), fencing.Fence{Resource: "orders/42", Token: 7, Mode: mode}
				ctx, lose := context.WithCancelCause(t.Context())
				err = guard.Do(ctx, db, f, func(context.Context, *sql.Tx) error {
					lose(lost)
					return nil
				})
				require.ErrorIs(t, err, fencing.ErrLost)
				require.ErrorContains(t, err, lost.Error())

				_, seen := guard.Seen(ctx, db, "orders/42")
				for name, err := range map[string]error{
					"Do":     guard.Do(ctx, db, f, nothing),
					"Claim":  guard.Claim(ctx, db, f),
					"Derive": guard.Derive(ctx, db, f),
					"Seen":   seen,
				} {
					require.ErrorIs(t, err, context.Canceled, name)
					require.ErrorIs(t, err, fencing.ErrLost, name)
				}
			})
		}
	}
}
