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

// WithLogger sets the logger. At level Warn it gets losses (not the end of a lease WithoutRenewal), failing renewals,
// unconfirmed releases, servers that do not answer waiting acquisitions or refuse them for a second, masters that
// abstain, servers whose messages do not arrive, and, once each, servers whose maxmemory-policy lets them evict locks.
// At level Info it gets the return of a server that answers or renews again, with the length of the outage. Nothing
// else is logged, and without this option nothing at all. The logger may block: it runs on the goroutine of the Trace
// functions.
func WithLogger(logger *slog.Logger) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Logger = logger })
}

// WithReleaseTimeout sets how long Release and Close wait for the masters to confirm, by default the smaller of TTL and
// 2 s. A release that is not confirmed by then continues in the background until the hold must have expired.
func WithReleaseTimeout(d time.Duration) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.ReleaseTimeout = l.Lock.Positive("WithReleaseTimeout", d) })
}

// WithReplicas makes an acquisition count only once n replicas of the master have it (of several masters: of each
// master that counts), and a renewal too. So a server that takes the master's place knows the lease, if it is one of
// these replicas. timeout bounds the wait for the replicas: 1 ms to a third of the TTL, and 3 s at most. If fewer
// replicas confirm in time, the hold is released and the acquisition fails with ErrReplicas; a renewal is tried again
// until the deadline. The option is off by default; a failover may then lose the last grants of the master. Any n of
// the replicas may confirm: if no failover may break exclusion, n must be the number of all replicas that can be
// promoted. The option costs one more connection, and a WAIT for each batch of calls.
func WithReplicas(n int, timeout time.Duration) Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Replicas, l.ReplicaTimeout = n, timeout })
}

// WithConfirmedHandOff makes a lock that is handed to a waiter count only once the server has answered a renewal of it,
// which costs one command and one round trip for each hand-off. It is for servers that answer a write once a durable
// log has it, such as Amazon MemoryDB and ElastiCache with synchronous durability. Such a server may send the message
// by which a waiter learns that it is granted the lock before the log has the grant. A failover then loses the grant
// while the waiter trusts it, and another client may get the lock. The renewal is a later write, so its answer says
// that the log has the grant too. Over a quorum each master confirms its own grant. The option is off by default, and
// WithReplicas includes it. It adds nothing where a server answers a write before that write is durable: a failover may
// lose any grant there.
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

// WithMaxHold bounds the life of a lease, counted from the grant: the lease is then lost with the reason MaxHold. The
// bound must be positive, and with WithoutRenewal it must not exceed the TTL. There is no bound by default.
func WithMaxHold(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MaxHold = l.Positive("WithMaxHold", d) })
}

// WithMinHold keeps the name taken until d has passed since the grant, however soon the lease is released: for work
// that is to be done once in a period, by many processes whose clocks differ a little. The lease itself ends with its
// Release. Its hold then stands on the server as ended, unrenewed, until d after its grant by the server's clock, and
// for at most d after the release: no client joins it, its owner included, and Inspect and the errors of other clients
// show it with Holder.Ended. If the connection broke during the acquisition, so that its request may still be on its
// way, the ended hold stands for a minute at most, even if that is longer.
//
// The same is left behind by a lease that is lost or that Close releases. A process that dies leaves its TTL, or the
// minimum if that is longer. A lease that has lasted longer than d leaves nothing, and neither does a lease that Redis
// has lost. d is no time to work in: a lease is trusted for its TTL and no longer. Upgrade and Downgrade do not begin a
// new minimum. The holds of a LockAll that has not returned leave nothing, however they end, and neither do the holds
// that join an owner's hold from another process. Only the death of the process leaves d there too: it keeps names
// taken that LockAll may never have held together.
//
// d must be positive and at most 24 h. Given to New it is the default of all acquisitions but those of an RWMutex;
// given to an RWMutex it is an *OptionError. Over a quorum, a minimum beyond the time of WithQuarantine needs a quorum
// of masters that keep their data.
func WithMinHold(d time.Duration) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.MinHold = l.Positive("WithMinHold", d) })
}

// WithMeta sets the text that Inspect and the errors of other clients show for this holder: at most 256 bytes, host:pid
// by default.
func WithMeta(meta string) LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Meta = meta })
}

// WithoutRenewal lets the lease end after its TTL. For work that is still under way that is a loss, with the reason
// Expired. As it was planned, it is not logged, and Stats counts it as Expired and not as Lost. By default a lease is
// renewed every third of the TTL, or up to 5 % of that earlier, so that leases do not renew together. A lease that was
// waited for is renewed once even with this option: a hand-off lasts for 3 s at most until its holder has confirmed it,
// and the TTL counts from that renewal. An RWMutex refuses it, and as a default it does not apply there.
func WithoutRenewal() LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.Renew = false })
}

// WithBackgroundRelease spares the caller the round trip of the release: Release ends the lease, sends the release and
// returns without the answer, and so do Do, Unlock of an RWMutex and the last Release of a reentrant hold. A pair of
// Lock and Release then takes one round trip. It is off by default, because a program that exits without Close may
// leave the lock taken until its TTL has passed.
//
// Release returns what this process knows: the *LostError of a lease that was lost before, or nil. What the answer
// would have said goes to Trace.ReleaseFailed, to the logger and to Stats: that the lease was lost without this process
// having heard of it, or broken by an operator, or that the release is not confirmed; such a release goes on in the
// background, as without the option. So nil does not say that the lock was held until the end. The fence does.
//
// The next acquisition of this process for the name is sent behind the release, over the same connection, without a
// wait for its answer. Where that order is not given, because the client is not from Dial, WithReplicas is set, a
// connection is replaced, or a server redirects or does not know the script, a single attempt that meets the hold of
// its own process waits for the answer to the release, and asks once more; Lock is handed the lock by the release; and
// an RWMutex asks after the answer. Close waits for the releases under way, at most the release timeout.
//
// Up to 1,024 releases are under way at once. Beyond that Release waits for the answer, as without the option, because
// the servers are slower than their clients. Upgrade, Downgrade and Close are the same with and without the option, and
// so is what WithMinHold leaves behind. To give the option twice is to give it once.
func WithBackgroundRelease() LockOption {
	return settings.LockOption(func(l *settings.Lock) { l.BackgroundRelease = true })
}

// WithLinger keeps the lock of an RWMutex in this process for this time after the last Unlock. Another Lock within that
// time costs no command. A waiter in another process ends it at once, and so does Close; single attempts of other
// processes fail during that time. It must be positive, and is off by default.
func WithLinger(d time.Duration) MutexOption {
	return settings.MutexOption(func(l *settings.Lock) { l.Linger = l.Positive("WithLinger", d) })
}

// optionError keeps a nil *Invalid from becoming a non-nil error.
func optionError(i *settings.Invalid) error {
	if i == nil {
		return nil
	}
	return &OptionError{Option: i.Option, Value: i.Value, Rule: i.Rule}
}
