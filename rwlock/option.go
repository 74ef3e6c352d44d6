package rwlock

import (
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/internal/settings"
)

// Option configures a Locker. Only the With functions of rwlock and redlock make options.
type Option interface{ ApplyLocker(*settings.Locker) }

// MutexOption configures an RWMutex. Given to New or Open it is the default of all of them.
type MutexOption interface {
	Option
	ApplyMutex(*settings.Lock)
}

// LockOption configures one acquisition, or an RWMutex. Given to New or Open it is the default of all of them.
type LockOption interface {
	MutexOption
	ApplyLock(*settings.Lock)
}

// WithPrefix sets the first part of every key and channel, "fencelock" by default: 1 to 128 bytes without white space
// and braces. Lockers exclude each other only under the same prefix. A fence carries only the name of the lock: under
// one guard, locks of different prefixes need different names.
func WithPrefix(prefix string) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Prefix = prefix })
}

// WithLogger sets the logger, by default what slog.Default returns at each line. It gets losses and failing servers at
// level Warn, and their return at level Info: docs/operate.md has each line. A failing server has at most one line a
// minute, the first within two seconds. The logger may block: it runs on the goroutine of the Trace functions.
func WithLogger(logger *slog.Logger) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Logger = logger })
}

// WithOwnedClient has Close close the client too, as for a Locker of Open. If New fails, the client stays open.
func WithOwnedClient() Option { return settings.Owned }

// WithReleaseTimeout sets how long Release and Close wait for the masters to confirm, by default the smaller of TTL and
// 2 s. A release that is not confirmed by then continues in the background until the hold must have expired.
func WithReleaseTimeout(d time.Duration) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.ReleaseTimeout = l.Lock.Positive("WithReleaseTimeout", d) })
}

// WithReplicas makes a grant and a renewal count only once n replicas of the master have it. If fewer confirm within
// timeout, 1 ms to a third of the TTL and 3 s at most, the acquisition fails with ErrReplicas. If no failover may break
// exclusion, n is the number of all replicas that can be promoted: see docs/deployments.md.
func WithReplicas(n int, timeout time.Duration) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Replicas, l.ReplicaTimeout = n, timeout })
}

// WithConfirmedHandOff makes a lock that is handed to a waiter count only once the server has answered a renewal of it,
// which costs one command and one round trip. It is for servers that answer a write once a durable log has it, such as
// Amazon MemoryDB. It is off by default, and WithReplicas includes it: see docs/deployments.md.
func WithConfirmedHandOff() Option {
	return settings.LockerOption(func(l *settings.Locker) { l.ConfirmHandOff = true })
}

// WithTTL sets how long a hold outlives its last renewal, which is how long a crashed holder blocks other clients: 10 s
// by default, at least 100 ms and at most 24 h. Over a quorum it must not exceed WithQuarantine. With WithReplicas it
// must be at least three times the timeout given there.
func WithTTL(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.TTL = d })
}

// WithMaxWait bounds how long Lock, RLock, Do, RDo, their forms for several locks, an RWMutex and Upgrade wait, in
// addition to ctx. It must be positive; there is no bound by default. At its end the error is an *AcquireError or a
// *QuorumError and matches no context error. Single attempts ignore it.
func WithMaxWait(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MaxWait = l.Positive("WithMaxWait", d) })
}

// WithMaxHold bounds the life of a lease, counted from the grant: the lease is then lost with ReasonMaxHold. The bound
// must be positive, and with WithoutRenewal it must not exceed the TTL. There is no bound by default.
func WithMaxHold(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MaxHold = l.Positive("WithMaxHold", d) })
}

// WithMinHold keeps the name taken until d after the grant, however soon the lease ends, for work that is due once in a
// period: see docs/integrations.md. No client works under what is left of the hold; Inspect shows it with
// Holder.Ended. d is positive and at most 24 h. An RWMutex refuses the option, and ignores it as a default.
func WithMinHold(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MinHold = l.Positive("WithMinHold", d) })
}

// WithMeta sets the text that Inspect and the errors of other clients show for this holder: at most 256 bytes, host:pid
// by default.
func WithMeta(meta string) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Meta = meta })
}

// WithoutRenewal lets the lease end after its TTL. For work still under way that is a loss, with ReasonExpired. As it
// was planned, it is not logged, and Stats counts it as Expired. A lease that was waited for is renewed once, and the
// TTL counts from that. An RWMutex refuses the option, and ignores it as a default.
func WithoutRenewal() LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Renew = false })
}

// WithBackgroundRelease spares the caller the round trip of the release: Release, Do, Unlock and the last Release of a
// reentrant hold return without the answer. What it says goes to Trace.ReleaseFailed, the logger and Stats. It is off
// by default, because a program that exits without Close may leave the lock to its TTL: see docs/guarantees.md.
func WithBackgroundRelease() LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.BackgroundRelease = true })
}

// WithLinger keeps the lock of an RWMutex in this process for this time after the last Unlock. Another Lock then costs
// no command. A waiter in another process ends it at once, and so does Close; single attempts there fail meanwhile.
// After a write each read gets a new token: see docs/guide.md. It is positive, and off by default.
func WithLinger(d time.Duration) MutexOption {
	return settings.MutexOption(func(l *settings.Lock) { l.Linger = l.Positive("WithLinger", d) })
}
