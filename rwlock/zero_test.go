package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// What was not made by this package refuses its use with an *OptionError that says how it is made.
func TestZeroValuesAreRefused(t *testing.T) {
	ctx := t.Context()
	nothing := func(context.Context) error { return nil }
	leaseErr := func(_ *rwlock.Lease, err error) error { return err }
	locker, lease, mutex := new(rwlock.Locker), new(rwlock.Lease), new(rwlock.RWMutex)
	for name, c := range map[string]struct {
		err    error
		option string
	}{
		"Locker.Lock":        {leaseErr(locker.Lock(ctx, "n")), "Locker"},
		"Locker.Lock, TTL":   {leaseErr(locker.Lock(ctx, "n", rwlock.WithTTL(time.Minute))), "Locker"},
		"Locker.TryLock":     {leaseErr(locker.TryLock(ctx, "n")), "Locker"},
		"Locker.RLock":       {leaseErr(locker.RLock(ctx, "n")), "Locker"},
		"Locker.TryRLock":    {leaseErr(locker.TryRLock(ctx, "n")), "Locker"},
		"Locker.Do":          {locker.Do(ctx, "n", nothing), "Locker"},
		"Locker.RDo":         {locker.RDo(ctx, "n", nothing), "Locker"},
		"Locker.Inspect":     {inspectErr(locker, ctx), "Locker"},
		"Locker.RWMutex":     {locker.RWMutex("n").Lock(ctx), "Locker"},
		"Lease.Err":          {lease.Err(), "Lease"},
		"Lease.Context":      {context.Cause(lease.Context(ctx)), "Lease"},
		"Lease.Renew":        {lease.Renew(ctx), "Lease"},
		"Lease.Release":      {lease.Release(ctx), "Lease"},
		"Lease.Upgrade":      {lease.Upgrade(ctx), "Lease"},
		"Lease.TryUpgrade":   {lease.TryUpgrade(ctx), "Lease"},
		"Lease.Downgrade":    {lease.Downgrade(ctx), "Lease"},
		"RWMutex.Lock":       {mutex.Lock(ctx), "RWMutex"},
		"RWMutex.TryLock":    {mutex.TryLock(ctx), "RWMutex"},
		"RWMutex.RLock":      {mutex.RLock(ctx), "RWMutex"},
		"RWMutex.TryRLock":   {mutex.TryRLock(ctx), "RWMutex"},
		"RWMutex.Unlock":     {mutex.Unlock(ctx), "RWMutex"},
		"RWMutex.RUnlock":    {mutex.RUnlock(ctx), "RWMutex"},
		"RWMutex.Upgrade":    {mutex.Upgrade(ctx), "RWMutex"},
		"RWMutex.TryUpgrade": {mutex.TryUpgrade(ctx), "RWMutex"},
		"RWMutex.Downgrade":  {mutex.Downgrade(ctx), "RWMutex"},
	} {
		var refused *rwlock.OptionError
		require.ErrorAs(t, c.err, &refused, name)
		require.Equal(t, c.option, refused.Option, name)
		require.Equal(t, "zero value", refused.Value, name)
		require.Contains(t, refused.Rule, "must be made by", name)
	}
}

// A lease that an acquisition did not return may be released, and every other method says why it cannot be used.
func TestANilLeaseIsRefused(t *testing.T) {
	ctx := t.Context()
	var lease *rwlock.Lease
	require.NoError(t, lease.Release(ctx))
	for name, err := range map[string]error{
		"Err": lease.Err(), "Context": context.Cause(lease.Context(ctx)), "Renew": lease.Renew(ctx),
		"Upgrade": lease.Upgrade(ctx), "TryUpgrade": lease.TryUpgrade(ctx), "Downgrade": lease.Downgrade(ctx),
	} {
		var refused *rwlock.OptionError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, rwlock.OptionError{Option: "Lease", Value: "nil", Rule: "must be made by a Locker"}, *refused, name)
	}
}

func inspectErr(l *rwlock.Locker, ctx context.Context) error {
	_, err := l.Inspect(ctx, "n")
	return err
}

// What has no error to return has nothing to tell.
func TestZeroValuesHaveNothing(t *testing.T) {
	locker, mutex := new(rwlock.Locker), new(rwlock.RWMutex)
	require.Zero(t, locker.Stats())
	require.NoError(t, locker.Close())
	require.NoError(t, locker.Close())
	for _, lease := range []*rwlock.Lease{new(rwlock.Lease), nil} {
		require.Zero(t, lease.Name())
		require.Zero(t, lease.Mode())
		require.Zero(t, lease.Owner())
		require.Zero(t, lease.Token())
		require.Zero(t, lease.Fence())
		require.Zero(t, lease.Deadline())
		require.Equal(t, "no lease", lease.String())
		select {
		case <-lease.Done():
		default:
			require.Fail(t, "there is nothing to wait for")
		}
	}
	require.Zero(t, mutex.Token())
	require.ErrorIs(t, context.Cause(mutex.Context(t.Context())), rwlock.ErrNotHeld)
	for _, err := range []error{
		new(rwlock.AcquireError), new(rwlock.QuorumError), new(rwlock.NodeError), new(rwlock.NoReplyError),
		new(rwlock.ReplicasError), new(rwlock.AbstainError), new(rwlock.LostError), new(rwlock.OptionError),
	} {
		require.NotEmpty(t, err.Error())
	}
}
