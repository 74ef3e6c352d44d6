package reentrant

import "github.com/seed74116694/fencelock/rwlock"

// Option configures a Locker.
type Option func(*Locker)

const defaultMaxDepth = 64

// WithMaxDepth bounds how many holds an owner may have of one lock in this process, the outermost included: 64 by
// default, at least 1. A further hold is ErrDepth. The limit detects an endless recursion.
func WithMaxDepth(n int) Option {
	return func(l *Locker) {
		l.maxDepth = n
		if n < 1 {
			l.refuse("WithMaxDepth", n, "must be at least 1")
		}
	}
}

// refuse records the first broken rule for the first acquisition. New returns no error, and a silent correction would
// hide the mistake.
func (l *Locker) refuse(option string, value any, rule string) {
	if l.invalid == nil {
		l.invalid = &rwlock.OptionError{Option: option, Value: value, Rule: rule}
	}
}
