package rwlock

import (
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/internal/settings"
)

// Option configures a Locker. Options are made by the With functions of rwlock and redlock only.
type Option interface{ ApplyLocker(*settings.Locker) }

// LockOption configures one acquisition. Given to New it is the default of all.
type LockOption interface {
	Option
	ApplyLock(*settings.Lock)
}

// WithPrefix sets the first part of every key and channel, "fencelock" by default: 1 to 128 bytes without white space
// and braces. Lockers exclude each other only under the same prefix.
// Fences carry the name of the lock alone: behind one guard the names of different prefixes have to differ.
func WithPrefix(prefix string) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Prefix = prefix })
}

// WithLogger sets where losses, failing renewals, unconfirmed releases, servers that do not answer those who wait, or
// refuse them for a second, masters that abstain, and messages that cannot be had are reported, at level Warn. That a
// server answers, or renews, again is reported at level Info, with how long it did not. Nothing else is logged, and
// without this option nothing at all. The logger may block: it runs where the functions of a Trace do.
func WithLogger(logger *slog.Logger) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Logger = logger })
}

// WithReleaseTimeout sets how long Release and Close wait for the masters to confirm, the smaller of TTL and 2 s by
// default. What is not confirmed by then goes on in the background until the hold must have expired.
func WithReleaseTimeout(d time.Duration) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.ReleaseTimeout = l.Lock.Positive("WithReleaseTimeout", d) })
}

// WithReplicas makes an acquisition count only once n replicas of the master have it (of several masters: of each that
// counts), and a renewal too: a server that takes the master's place knows of the lease then, if it is one of them.
// They are given the timeout for it, 1 ms to a third of the TTL and 3 s at most. Where fewer confirm it in time, the
// hold is released and the acquisition fails with ErrReplicas; a renewal is tried again until the deadline. Off by
// default, when a failover may lose what the master has granted last. Any n of the replicas confirm: for a promise that
// no failover breaks, n is all of those that may be promoted. It costs one more connection, and for each batch of calls
// a WAIT.
func WithReplicas(n int, timeout time.Duration) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Replicas, l.ReplicaTimeout = n, timeout })
}

// WithTTL sets how long a hold outlives its last renewal, which is how long a crashed holder blocks the others: 10 s
// by default, 100 ms at the least and 24 h at the most. Over a quorum it must not exceed WithQuarantine; with
// WithReplicas it must be at least three times the timeout given there.
func WithTTL(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.TTL = d })
}

// WithMaxWait bounds how long Lock, RLock, Do, RDo, an RWMutex and Upgrade wait, beside ctx. It must be positive; there
// is no bound by default. At its end the error is an *AcquireError or a *QuorumError and matches no context error.
// TryLock and TryRLock ignore it.
func WithMaxWait(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MaxWait = l.Positive("WithMaxWait", d) })
}

// WithMaxHold bounds the life of a lease, counted from the grant: it ends there as lost, with the reason MaxHold. It
// must be positive, and with WithoutRenewal it must not exceed the TTL. There is no bound by default.
func WithMaxHold(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MaxHold = l.Positive("WithMaxHold", d) })
}

// WithMeta sets what Inspect and the errors of others show of this holder: at most 256 bytes, host:pid by default.
func WithMeta(meta string) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Meta = meta })
}

// WithoutRenewal leaves the lease to end after its TTL. By default it is renewed every third of the TTL, with a jitter
// of 10 %. A lease that was waited for is renewed once all the same: a hand-off lasts for 3 s at most until
// its holder has confirmed it, and the TTL counts from there.
func WithoutRenewal() LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Renew = false })
}

// WithLinger keeps the lock of an RWMutex in this process for so long after the last Unlock: to lock it again in that
// time costs no command. A waiter in another process ends that at once, and so does Close; single attempts of other
// processes fail meanwhile. It must be positive, and is off by default. Given to Lock or Do it is an *OptionError; as a
// default of New they ignore it. An RWMutex cannot combine it with WithoutRenewal.
func WithLinger(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Linger = l.Positive("WithLinger", d) })
}

// optionError keeps a nil *Invalid from becoming an error that is not nil.
func optionError(i *settings.Invalid) error {
	if i == nil {
		return nil
	}
	return &OptionError{Option: i.Option, Value: i.Value, Rule: i.Rule}
}
