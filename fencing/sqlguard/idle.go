package sqlguard

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// claimBounded claims a write and bounds how long its transaction may be idle, where there is a bound and the database
// can keep it.
func (g *Guard) claimBounded(ctx context.Context, tx *sql.Tx, f fencing.Fence) error {
	idle, bounded := idleLimit(ctx, f.Resource)
	if !bounded || g.dialect != PostgreSQL {
		return g.Claim(ctx, tx, f)
	}
	return g.check(ctx, tx, f, g.statements.claimWriteBounded, idle, fencing.Registers.Check)
}

const (
	minIdle = time.Second                      // or a slow network would be taken for a pause
	maxIdle = math.MaxInt32 * time.Millisecond // PostgreSQL's
)

// idleLimit returns what the lease behind ctx's fence, and ctx itself, have left.
func idleLimit(ctx context.Context, resource string) (limit time.Duration, bounded bool) {
	limit = maxIdle
	for _, deadline := range []func() (time.Time, bool){
		ctx.Deadline,
		func() (time.Time, bool) { return fencing.Deadline(ctx, resource) },
	} {
		if at, ok := deadline(); ok {
			limit, bounded = min(limit, time.Until(at)), true
		}
	}
	return max(limit, minIdle), bounded
}
