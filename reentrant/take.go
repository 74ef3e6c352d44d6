package reentrant

import (
	"context"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/rwlock"
)

// take gets a lease for an owner that has none of this lock here.
func (l *Locker) take(ctx context.Context, id *identity, r request) (*rwlock.Lease, error) {
	if id.joins {
		if lease, err := l.join(ctx, id, r); lease != nil || err != nil {
			return lease, err
		}
	}
	return l.call(ctx, r, settings.LockOption(func(s *settings.Lock) { s.Owner = id.string }))
}

// join nests in what the owner holds on the masters. It returns nil and no error if that is nothing and nobody has said
// otherwise. Who carries a fence has said otherwise: the section that it comes from relies on the lock, so a hold that
// is gone, or that was taken anew since, is a loss and must not be repaired behind its back.
func (l *Locker) join(ctx context.Context, id *identity, r request) (*rwlock.Lease, error) {
	lease, err := l.call(ctx, r, settings.LockOption(func(s *settings.Lock) { s.Owner, s.Join = id.string, true }))
	_, gone := err.(*rwlock.LostError) // not one in the tree: ctx may have ended with the loss of another lock
	switch {
	case gone:
		return nil, lost(ctx, r.name)
	case err != nil:
		return nil, err
	case disproved(ctx, lease):
		_ = lease.Release(ctx) // unconfirmed, it goes on in the background; the loss is what has to be told
		return nil, lost(ctx, r.name)
	}
	return lease, nil
}

// disproved reports whether ctx claims another hold of the lock than the one that there is.
func disproved(ctx context.Context, lease *rwlock.Lease) bool {
	claim, claimed := fencing.FromContext(ctx, lease.Name())
	return claimed && claim.Token != lease.Token()
}

// lost is the loss of what ctx claims to hold, nil if that is nothing.
func lost(ctx context.Context, name string) error {
	if claim, claimed := fencing.FromContext(ctx, name); claimed {
		return &rwlock.LostError{Name: name, Token: claim.Token, Reason: rwlock.Taken}
	}
	return nil
}

// call is the remote acquisition. The extra option comes last: nobody else says who the owner is.
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
