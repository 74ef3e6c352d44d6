package rwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Mode is what a lock is taken for.
type Mode = fencing.Mode

// The modes of a lock.
const (
	Read  = fencing.Read
	Write = fencing.Write
)

// Locker takes locks by name. It is safe for concurrent use; a process needs one for each Redis. The zero value cannot
// be used; New makes one.
type Locker struct {
	engine   *engine.Engine
	defaults settings.Lock
	minTTL   time.Duration // of one acquisition; what its replicas leave time for
	maxTTL   time.Duration // the same; what the other clients of the masters count on
	terms    *engine.Terms // of the defaults
	mutexes  *mutexes
}

// New returns a Locker over one master: a standalone Redis, a Sentinel group or a Cluster. Any rueidis client works;
// one from Dial is tuned for locks. New sends nothing; Close it when done, and the client after that.
func New(client rueidis.Client, opts ...Option) (*Locker, error) {
	s := settings.Default()
	s.Masters = []rueidis.Client{client}
	for _, opt := range opts {
		if opt == nil {
			return nil, &OptionError{"option", "nil", "must not be nil"}
		}
		opt.ApplyLocker(&s)
	}
	for _, master := range s.Masters {
		if master == nil {
			return nil, &OptionError{"client", "nil", "must be a client"}
		}
	}
	if err := optionError(s.Check()); err != nil {
		return nil, err
	}
	return &Locker{
		engine: engine.New(s.Engine()), defaults: s.Lock, terms: s.Lock.Terms(),
		minTTL: s.ShortestTTL(), maxTTL: s.LongestTTL(),
		mutexes: newMutexes(),
	}, nil
}

// Lock takes the lock for writing: alone. It waits in the order of arrival until it is granted, until ctx ends
// (*AcquireError, or *QuorumError if the master does not answer) or the locker is closed. A ctx that belongs to a
// section under the same lock is ErrNested at once: it would wait for itself. ctx bounds the waiting only; work under
// Lease.Context. Release the lease when done: as long as the process lives it is renewed, unless WithMaxHold or
// WithoutRenewal says otherwise.
//
// After Close the error is ErrClosed. A name or option that breaks a rule is an *OptionError before anything is sent.
// ErrConflict and ErrReplicas come as a *QuorumError. With every error there is no lease, and what a master may have
// granted is released in the background.
func (l *Locker) Lock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, name, Write, engine.Wait, opts)
}

// TryLock is Lock with a single attempt: *AcquireError at once if others hold the lock or wait for it. A server that
// does not answer is waited for until ctx ends or the client gives the connection up, which takes up to 6 s with a
// client from Dial; over a quorum, for the node timeout. The error is a *QuorumError then.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, name, Write, engine.Try, opts)
}

// RLock takes the lock for reading: beside other readers. It waits behind a writer that came first.
func (l *Locker) RLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, name, Read, engine.Wait, opts)
}

// TryRLock is RLock with a single attempt.
func (l *Locker) TryRLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, name, Read, engine.Try, opts)
}

// acquire is every way to a Lease: it checks what the caller has given before anything is sent.
func (l *Locker) acquire(
	ctx context.Context, name string, mode Mode, entry engine.Entry, opts []LockOption,
) (*Lease, error) {
	if l.isZero() {
		return nil, errZeroLocker
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	r := engine.Request{Name: name, Mode: mode, Entry: entry, Terms: l.terms}
	if len(opts) > 0 {
		if err := l.applyLockOptions(&r, opts); err != nil {
			return nil, err
		}
	}
	return l.request(ctx, r)
}

// request is an acquisition whose options have been checked. The limit of WithMaxWait is a context of its own, so that
// an error can tell it from the end of the caller's: only the latter matches ctx.Err().
func (l *Locker) request(ctx context.Context, r engine.Request) (*Lease, error) {
	if r.Entry == engine.Wait {
		if err := l.nested(ctx, r.Name, r.Owner); err != nil {
			return nil, err
		}
	}
	within, begun := ctx, time.Time{}
	if limit := r.Terms.MaxWait; limit > 0 && r.Entry != engine.Try {
		begun = time.Now() // before the limit begins to count: what was waited is never less than it
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, limit, &maxWaitError{limit})
		defer cancel()
	}
	// The lease is made first and filled by the engine: it and its hold are one allocation.
	lease := &Lease{locker: l, owned: r.Owner != ""}
	if err := l.engine.Acquire(within, &lease.inner, r); err != nil {
		failure, ok := err.(*engine.Failure)
		limited := !begun.IsZero() && ctx.Err() == nil && within.Err() != nil
		if ok && limited && failure.Err != nil {
			failure.Err = context.Cause(within) // not as the end of the caller's context
			failure.Waited = time.Since(begun)
		}
		return nil, outcome(err)
	}
	return lease, nil
}

// applyLockOptions is for an acquisition with options of its own. Without any, the terms of all are shared: they hold
// the arguments of scripts as text, which would be written anew with every acquisition.
func (l *Locker) applyLockOptions(r *engine.Request, opts []LockOption) error {
	defaults := l.defaults
	defaults.Linger = 0 // of an RWMutex only: no rule about it applies here
	s, err := l.lockSettings(defaults, opts)
	if err != nil {
		return err
	}
	if s.Linger > 0 {
		return &OptionError{"WithLinger", s.Linger, "is for an RWMutex, or for New as the default of all"}
	}
	if r.Terms, r.Owner = s.Terms(), s.Owner; s.Join {
		r.Entry, r.Claimed = engine.Join, s.Claimed
	}
	return nil
}

// lockSettings returns the defaults with the options of one acquisition over them. A longer TTL than the masters know
// of is refused here: their quarantine would end before such a lease that was forgotten.
func (l *Locker) lockSettings(s settings.Lock, opts []LockOption) (settings.Lock, error) {
	for _, opt := range opts {
		if opt == nil {
			return s, &OptionError{"option", "nil", "must not be nil"}
		}
		opt.ApplyLock(&s)
	}
	if err := optionError(s.Check()); err != nil {
		return s, err
	}
	if s.TTL < l.minTTL {
		const rule = "must be at least three times the timeout of WithReplicas, %v"
		return s, &OptionError{"WithTTL", s.TTL, fmt.Sprintf(rule, l.minTTL)}
	}
	if s.TTL > l.maxTTL {
		const rule = "must not exceed the quarantine of %v, see WithQuarantine"
		return s, &OptionError{"WithTTL", s.TTL, fmt.Sprintf(rule, l.maxTTL)}
	}
	return s, nil
}

// maxWaitError ends the waiting where WithMaxWait said so. It matches no context's end: the caller's has not ended.
type maxWaitError struct{ limit time.Duration }

func (e *maxWaitError) Error() string {
	return "the limit of WithMaxWait, " + e.limit.String() + ", was reached"
}

// Stats counts what this locker has done, and what it has now.
type Stats struct {
	Held          int    // leases at this moment
	Waiting       int    // acquisitions at this moment
	Unreachable   int    // waiting acquisitions that no quorum answers, or that a quorum has refused to serve for 1 s
	NoMessages    int    // waiting acquisitions that poll because messages do not arrive: see Trace.NoMessages
	Lingering     int    // leases that an RWMutex keeps although nobody uses them
	Acquired      uint64 // leases got
	Contended     uint64 // of those, after waiting
	HandedOff     uint64 // of those, by the one who held the lock before
	Lost          uint64 // leases that ended without Release
	Renewed       uint64 // renewals confirmed
	RenewFailed   uint64 // renewals that were not, each tried again until the deadline
	EventsDropped uint64 // events that neither Logger nor Trace has seen, because too many waited for them
}

// Stats returns the counters.
func (l *Locker) Stats() Stats {
	if l.isZero() {
		return Stats{}
	}
	s := l.engine.Stats()
	return Stats{
		Held: s.Held, Waiting: s.Waiting, Unreachable: s.Unreachable, NoMessages: s.NoMessages,
		Lingering: l.mutexes.lingering(),
		Acquired:  s.Acquired, Contended: s.Contended, HandedOff: s.HandedOff, Lost: s.Lost,
		Renewed: s.Renewed, RenewFailed: s.RenewFailed, EventsDropped: s.EventsDropped,
	}
}

// Close ends the locker: waiters fail with ErrClosed, leases are released, and when it returns none of its goroutines
// is left. It waits at most the release timeout for the masters, as long again for functions of Trace and Logger, and
// for a dial that is under way. Only a function of Trace or Logger that still blocks then is left running. The clients
// stay open; they are the caller's. Close returns nil, also when called again; each call waits as the first does.
func (l *Locker) Close() error {
	if l.isZero() {
		return nil
	}
	l.mutexes.close()
	l.engine.Close()
	return nil
}
