package joined

import (
	"context"
	"errors"
	"fmt"
)

// EndOf returns why ctx has ended: its cause, which matches ctx.Err() as well. A caller that cancels with a cause finds
// that in the error, and one that only knows contexts still finds context.Canceled.
func EndOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &contextEnd{err, cause}
}

// contextEnd speaks of the cause alone: that a context was cancelled says less.
type contextEnd struct{ err, cause error }

func (e *contextEnd) Error() string { return e.cause.Error() }

func (e *contextEnd) Unwrap() []error { return []error{e.cause, e.err} }

// WithCause returns err, with the cause of ctx's end where err is that end and does not tell why. What knows contexts
// and not their causes, such as database/sql, says "context canceled" where a lease was lost.
func WithCause(ctx context.Context, err error) error {
	end, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || end == nil || !errors.Is(err, end) || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
