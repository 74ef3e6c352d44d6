package reentrant

import "github.com/seed74116694/fencelock/rwlock"

// Option configures a Locker.
type Option func(*Locker)

const defaultMaxDepth = 64

// WithMaxDepth bounds how many holds an owner may have of one lock in this process, the outermost included: 64 by
// default, at least 1. The next one is ErrDepth. A recursion that never ends is found that way.
func WithMaxDepth(n int) Option {
	return func(l *Locker) {
		l.maxDepth = n
		if n < 1 {
			l.refuse("WithMaxDepth", n, "must be at least 1")
		}
	}
}

// refuse keeps the first broken rule for the first acquisition: New has no error to return, and a silent repair would
// hide the mistake.
func (l *Locker) refuse(option string, value any, rule string) {
	if l.invalid == nil {
		l.invalid = &rwlock.OptionError{Option: option, Value: value, Rule: rule}
	}
}
