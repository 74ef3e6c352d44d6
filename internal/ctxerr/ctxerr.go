// Package ctxerr names the cause of a context's end in errors.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
)

// Cause returns why ctx has ended: its cause, as an error that also matches ctx.Err(). A caller that cancels with a
// cause finds the cause in the error, and a caller that only checks for context.Canceled finds that too.
func Cause(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &contextEnd{err, cause}
}

// contextEnd has the text of the cause alone: "context canceled" says less.
type contextEnd struct{ err, cause error }

func (e *contextEnd) Error() string { return e.cause.Error() }

func (e *contextEnd) Unwrap() []error { return []error{e.cause, e.err} }

// WithCause returns err, and adds the cause of ctx's end where err is that end without the cause. A package that uses
// contexts but not their causes, such as database/sql, returns "context canceled" for a lost lease.
func WithCause(ctx context.Context, err error) error {
	end, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || end == nil || !errors.Is(err, end) || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
