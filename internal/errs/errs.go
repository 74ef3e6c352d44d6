// Package errs makes errors of other errors, of contexts and of work under locks. Their text has one line, because a
// log line, a problem body and a status message have one.
package errs

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Join joins the errors that are not nil: it returns nil if there are none, the error itself if there is one, and
// otherwise an error that matches each of them. The text is the text of the errors in the given order, with "; "
// between them and in place of each line break.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joined{all}
}

type joined struct{ errs []error }

func (j *joined) Error() string {
	var lines []string
	for _, err := range j.errs {
		for line := range strings.Lines(err.Error()) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "; ")
}

func (j *joined) Unwrap() []error { return j.errs }

// Parts returns the errors that Join has joined: none of nil, and the error itself if there was one.
func Parts(err error) []error {
	if j, ok := err.(*joined); ok {
		return j.errs
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Outcome joins the error of work under locks, as in Do, and the losses of its leases; nil stands for none. A loss that
// the work has returned is not joined again. If the work has returned nil, Completed reports that.
func Outcome(work error, losses ...error) error {
	all := []error{work}
	for _, loss := range losses {
		if loss != nil && !errors.Is(work, loss) {
			all = append(all, loss)
		}
	}
	switch err := Join(all...); {
	case err == nil:
		return nil
	case work == nil:
		return &verdict{joined{Parts(err)}, true}
	case Completed(err): // that was said of a section inside this work
		return &verdict{joined{Parts(err)}, false}
	default:
		return err
	}
}

// Completed reports whether err says of the outermost work that it had returned nil.
func Completed(err error) bool {
	v, ok := errors.AsType[*verdict](err)
	return ok && v.completed
}

// verdict is the errors of work and of its leases, and whether the work has returned nil.
type verdict struct {
	joined
	completed bool
}

func (v *verdict) Error() string {
	text := v.joined.Error()
	if v.completed {
		text += "; the work had returned without an error"
	}
	return text
}

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
