package fencing

import "context"

// Guard protects a storage against stale accesses.
type Guard interface {
	// Do checks f, raises its register and runs access, all in one critical section: between the check and the end of
	// access, no access runs that f's token would refuse or that would refuse f. A [Read] fence is accepted while its
	// token is at least the newest write's, a [Write] fence while it is at least the newest read's too.
	//
	// On refusal, access does not run and the error matches [ErrStale], [ErrMissing] (a token of zero) or
	// [ErrMalformed]. Otherwise Do returns the result of access. The register stays raised even if access fails,
	// because a failed access may have happened in part. The access is over when it returns: what it leaves running is
	// not guarded.
	//
	// Do cannot tell whether access writes. Under a Read fence it must not: a method that writes asks for f.Mode == Write
	// first.
	Do(ctx context.Context, f Fence, access func(context.Context) error) error
}
