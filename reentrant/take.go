package reentrant

import (
	"context"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/rwlock"
)

// take acquires a lease for an owner that has no lease of this lock in this process.
func (l *Locker) take(ctx context.Context, id *identity, r request) (*rwlock.Lease, error) {
	if id.joins {
		if lease, err := l.join(ctx, id, r); lease != nil || err != nil {
			return lease, err
		}
	}
	return l.call(ctx, r, settings.LockOption(func(s *settings.Lock) { s.Owner = id.string }))
}

// join nests in a hold that the owner has on the masters. It returns nil and no error if there is no such hold and ctx
// claims none. A fence in ctx is a claim: the section of the fence relies on the hold with that token. The owner may
// have other holds of the lock too, but none of them replaces it. If it is gone, that is a loss, even if the owner has
// taken the lock again since.
func (l *Locker) join(ctx context.Context, id *identity, r request) (*rwlock.Lease, error) {
	claim, claimed := fencing.FromContext(ctx, r.name)
	lease, err := l.call(ctx, r, settings.LockOption(func(s *settings.Lock) {
		s.Owner, s.Join, s.Claimed = id.string, true, claim.Token
	}))
	_, gone := err.(*rwlock.LostError) // not errors.As: the loss of another lock may have ended ctx
	switch {
	case gone && claimed:
		return nil, &rwlock.LostError{Name: r.name, Token: claim.Token, Reason: rwlock.Taken}
	case gone:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return lease, nil
}

// call makes the remote acquisition. The extra option comes last, so that no option of the caller overrides the owner.
func (l *Locker) call(ctx context.Context, r request, extra rwlock.LockOption) (*rwlock.Lease, error) {
	opts := append(r.opts[:len(r.opts):len(r.opts)], extra)
	switch {
	case r.mode == rwlock.Write && r.try:
		return l.remote.TryLock(ctx, r.name, opts...)
	case r.mode == rwlock.Write:
		return l.remote.Lock(ctx, r.name, opts...)
	case r.try:
		return l.remote.TryRLock(ctx, r.name, opts...)
	default:
		return l.remote.RLock(ctx, r.name, opts...)
	}
}
