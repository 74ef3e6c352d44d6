package reentrant

import "github.com/seed74116694/fencelock/rwlock"

// The errors of values that this package did not make.
var (
	errZeroLocker = &rwlock.OptionError{Option: "reentrant.Locker", Value: "zero value", Rule: "must be made by New"}
	errZeroHold   = &rwlock.OptionError{Option: "reentrant.Hold", Value: "zero value", Rule: "must be made by a Locker"}
)

// isZero reports whether the locker was not made by New.
func (l *Locker) isZero() bool { return l.sections == nil }

// isZero reports whether the hold was not made by a Locker: it is the zero value or nil.
func (h *Hold) isZero() bool { return h == nil || h.section == nil }
