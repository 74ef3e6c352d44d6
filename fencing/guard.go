package fencing

import "context"

// Guard stands before a storage and lets nothing stale through.
type Guard interface {
	// Do checks f, raises its register and runs access, all in one critical
	// section: no access that f's token would refuse, or that would refuse f,
	// runs between the check and the end of access. A [Read] fence is accepted
	// while its token is at least the newest write's, a [Write] fence while it is
	// at least the newest read's too.
	//
	// Refused, access does not run and the error matches [ErrStale], [ErrMissing]
	// (a token of zero) or [ErrMalformed]. Otherwise Do returns what access
	// returns; the register stays raised whatever that is, because what failed
	// may have happened in part.
	Do(ctx context.Context, f Fence, access func(context.Context) error) error
}
