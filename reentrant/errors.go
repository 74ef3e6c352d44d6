package reentrant

import "errors"

// The causes, for errors.Is. The messages name the lock. All other errors are those of package rwlock.
var (
	ErrNoOwner = errors.New("reentrant: no owner in the context, attach one with WithOwner")
	ErrOrder   = errors.New("reentrant: hold released out of order") // a nested hold is not released
	ErrDepth   = errors.New("reentrant: nested too deep")            // the limit of WithMaxDepth
)

// errBusy ends a TryLock during an acquisition of the same owner whose result is still open.
var errBusy = errors.New("another goroutine with the same owner is acquiring it")
