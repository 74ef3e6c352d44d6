// Package outcome makes the error of a call that runs work under locks, such as Do.
package outcome

import (
	"errors"

	"github.com/seed74116694/fencelock/internal/joined"
)

// Of joins the error of the work and the losses of its leases; nil stands for none. A loss that the work has returned
// is not joined again. If the work has returned nil, Completed reports that.
func Of(work error, losses ...error) error {
	var all []error
	if work != nil {
		all = append(all, work)
	}
	for _, loss := range losses {
		if loss != nil && !errors.Is(work, loss) {
			all = append(all, loss)
		}
	}
	switch err := joined.Errors(all...); {
	case err == nil:
		return nil
	case work == nil:
		return &verdict{all, true}
	case Completed(err): // that was said of a section inside this work
		return &verdict{all, false}
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
	errs      []error
	completed bool
}

func (v *verdict) Error() string {
	text := joined.Errors(v.errs...).Error()
	if v.completed {
		text += "; the work had returned without an error"
	}
	return text
}

// Unwrap is for errors.Is and errors.As.
func (v *verdict) Unwrap() []error { return v.errs }
