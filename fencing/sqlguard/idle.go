package sqlguard

import (
	"context"
	"math"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

const (
	minIdle = time.Second                      // below it, a slow network would look like a pause
	maxIdle = math.MaxInt32 * time.Millisecond // PostgreSQL's
)

// idleLimit returns the time that the lease behind ctx's fence, and ctx itself, have left; 0 if neither has a deadline.
func idleLimit(ctx context.Context, resource string) time.Duration {
	limit, bounded := maxIdle, false
	for _, deadline := range []func() (time.Time, bool){
		ctx.Deadline,
		func() (time.Time, bool) { return fencing.Deadline(ctx, resource) },
	} {
		if at, ok := deadline(); ok {
			limit, bounded = min(limit, time.Until(at)), true
		}
	}
	if !bounded {
		return 0
	}
	return max(limit, minIdle)
}
