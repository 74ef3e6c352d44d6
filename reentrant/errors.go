package reentrant

import "errors"

// The causes, for errors.Is. The messages name the lock; everything else comes from package rwlock as it is there.
var (
	ErrNoOwner = errors.New("reentrant: no owner in the context, attach one with WithOwner")
	ErrOrder   = errors.New("reentrant: hold released out of order") // one nested in it is not released yet
	ErrDepth   = errors.New("reentrant: nested too deep")            // the limit of WithMaxDepth
)

// errBusy ends a TryLock that meets an acquisition of the same owner whose outcome is open.
var errBusy = errors.New("another goroutine with the same owner is acquiring it")
