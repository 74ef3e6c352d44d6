package rwlock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/owners"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Mode is what a lock is held for: reading or writing.
type Mode = fencing.Mode

// The modes of a lock.
const (
	Read  = fencing.Read
	Write = fencing.Write
)

// Locker takes locks by name. It is safe for concurrent use; a process needs one for each Redis. New and Open make one:
// the methods of the zero value panic.
type Locker struct {
	forOwners
	engine   *engine.Engine
	defaults settings.Lock
	minTTL   time.Duration // lower bound for an acquisition: leaves time for replicas to confirm
	maxTTL   time.Duration // upper bound: the TTL that the other clients of the masters rely on
	terms    *engine.Terms // of defaults
	prefix   string
	mutexes  *mutexes
	owned    *clients // those that Close closes; or nil
	logger   *slog.Logger
}

// mustBeMade panics for the zero value: to use it is a fault of the program, which no caller handles.
func (l *Locker) mustBeMade() {
	if l == nil || l.engine == nil {
		panic("rwlock: a Locker is made by New or Open")
	}
}

// New returns a Locker over one master: a standalone Redis, a Sentinel group or a Cluster. Any rueidis client works; a
// client from Dial is tuned for locks. New sends nothing. Close the Locker when done, and the client after that.
func New(client rueidis.Client, opts ...Option) (*Locker, error) {
	s := settings.Default()
	s.Clients = []rueidis.Client{client}
	if invalid := settings.Apply(&s, opts); invalid != nil {
		return nil, (*OptionError)(invalid)
	}
	var owned *clients
	if s.Owned {
		owned = &clients{all: s.Clients}
	}
	config := s.Engine()
	locker := &Locker{
		engine: engine.New(config), defaults: s.Lock, terms: s.Lock.Prepare(), prefix: s.Prefix,
		minTTL: 3 * config.ReplicaTimeout, maxTTL: config.LongestTTL, mutexes: newMutexes(), owned: owned,
		logger: s.Logger,
	}
	locker.forOwners = owners.Hide((*ownerCalls)(locker))
	if len(config.Clients) == 1 {
		locker.maxTTL = settings.MaxTTL
	}
	if s.Begin {
		locker.engine.Begin()
	}
	return locker, nil
}

// Lock takes the lock for writing, which excludes all other holders. It waits in the order of arrival until the lock is
// granted, until ctx ends (*AcquireError, or *QuorumError if the master does not answer) or the locker is closed. If
// ctx belongs to a section under the same lock, Lock returns ErrNested at once, because it would wait for its own
// caller. ctx bounds only the wait: run the work under Lease.Context. Release the lease when done. It is renewed as
// long as the process lives, up to the limit of WithMaxHold, and not with WithoutRenewal.
//
// After Close the error is ErrClosed. A name or option that breaks a rule is an *OptionError, before anything is sent.
// ErrConflict and ErrReplicas come as a *QuorumError. With every error there is no lease, and a hold that a master may
// have granted is released in the background.
func (l *Locker) Lock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, engine.Request{Name: name, Mode: Write, Entry: engine.Wait}, time.Time{}, opts)
}

// TryLock is Lock with a single attempt: it returns an *AcquireError at once if another client holds the lock or waits
// for it. Over a quorum several attempts at the same moment may all be refused, although the lock is free: each of them
// gets some of the masters. A server that does not answer makes the error a *QuorumError: when ctx ends or the client
// gives up the connection, over a quorum after the node timeout, and at once if the server has just failed. A client
// from Dial gives up after 2 to 3 s, and after up to twice base.Dialer.Timeout more if it has to connect first. If this
// process is giving back the lock by itself, the request is sent after the answer to that release.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, engine.Request{Name: name, Mode: Write, Entry: engine.Try}, time.Time{}, opts)
}

// RLock takes the lock for reading, which it shares with other readers. It waits behind a writer that came first.
func (l *Locker) RLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, engine.Request{Name: name, Mode: Read, Entry: engine.Wait}, time.Time{}, opts)
}

// TryRLock is RLock with a single attempt.
func (l *Locker) TryRLock(ctx context.Context, name string, opts ...LockOption) (*Lease, error) {
	return l.acquire(ctx, engine.Request{Name: name, Mode: Read, Entry: engine.Try}, time.Time{}, opts)
}

// LockAll takes several locks, each in the mode of its Want: all of them, or none. All are asked for at once, so on one
// Redis free locks cost one round trip. Callers that take the same locks never wait for each other in a circle, in
// whatever order and mode: docs/guarantees.md has the rules under "Several locks".
//
// If ctx comes from a section of this locker that holds a later lock, in byte order, LockAll returns ErrLockOrder where
// it would have to wait. If it comes from a section under one of the names, the error is ErrNested, as of Lock.
//
// The options apply to each lock, and WithMaxWait to the whole call. The errors are those of Lock, and name the lock
// that LockAll could not get. A lock that is lost meanwhile ends the call with its *LostError. No want, more than
// 1,000, a mode that is neither, and a name that occurs twice are an *OptionError before anything is sent. With every
// error the call holds nothing: what it has taken is released in the background.
func (l *Locker) LockAll(ctx context.Context, wants []Want, opts ...LockOption) (*MultiLease, error) {
	return l.acquireAll(ctx, wants, engine.Request{Entry: engine.Wait}, time.Now(), nil, opts)
}

// TryLockAll is LockAll with a single attempt for each lock, as TryLock and TryRLock are for one: it returns an
// *AcquireError at once if another client holds one of the locks or waits for it, unless both only read.
func (l *Locker) TryLockAll(ctx context.Context, wants []Want, opts ...LockOption) (*MultiLease, error) {
	return l.acquireAll(ctx, wants, engine.Request{Entry: engine.Try}, time.Now(), nil, opts)
}

// Adopt takes over the lock of a Ticket, which another process has made with Lease.Detach: it returns a lease of this
// locker in the same mode, with a larger token and with options of its own. There is no gap: the detached hold stands
// until the lease has been granted. Adopt makes a single attempt, as TryLock does, and does not wait.
//
// At most one Adopt of a ticket succeeds. Of several at the same time, one or none does; the others get an
// *AcquireError, or a *TicketError once one has succeeded. An adoption that fails leaves the ticket as it was, for as
// long as the lock is kept; but after a *QuorumError that is Indeterminate, the end of ctx, ErrClosed or a *LostError
// the ticket may be used up: docs/guarantees.md.
//
// A ticket that is not taken is a *TicketError, which names the reason: it is damaged or of another version, prefix or
// set of masters, or its hold is gone: expired, released, broken, or adopted. The other errors are those of TryLock.
// With every error there is no lease. WithMinHold counts from the grant of the detached hold.
func (l *Locker) Adopt(ctx context.Context, t Ticket, opts ...LockOption) (*Lease, error) {
	l.mustBeMade()
	if err := t.check(); err != nil {
		return nil, err
	}
	if t.Prefix != l.prefix {
		reason := fmt.Sprintf("its prefix is %q, and that of this locker is %q", t.Prefix, l.prefix)
		return nil, &TicketError{Name: t.Name, Reason: reason}
	}
	s, err := lockSettings(l, l.defaults, opts)
	if err != nil {
		return nil, err
	}
	lease := &Lease{locker: l}
	detached := engine.Detached{
		Name: t.Name, Mode: t.Mode, Owner: t.Owner, Hold: t.Hold, Token: t.Token, Secret: *t.secret, Set: t.Set,
		Left: t.Remaining,
	}
	if err := detached.Adopt(ctx, l.engine, &lease.inner, s.Prepare()); err != nil {
		return nil, convertError(err)
	}
	return lease, nil
}

// Do runs fn under Lease.Context while it holds the lock for writing, and releases it also when fn panics. If Lock
// fails, fn does not run and the error is Lock's. Otherwise Do returns fn's error. If the lease was lost while fn ran,
// a *LostError is joined to it: another holder may have worked at the same time, and Completed reports whether fn had
// returned nil. An unconfirmed release is no error of Do, because the hold ends with its TTL at the latest.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption) error {
	_, err := l.do(ctx, engine.Request{Name: name, Mode: Write, Entry: engine.Wait}, fn, opts)
	return err
}

// RDo is Do for reading: other readers may hold the lock at the same time, and no writer does.
func (l *Locker) RDo(ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption) error {
	_, err := l.do(ctx, engine.Request{Name: name, Mode: Read, Entry: engine.Wait}, fn, opts)
	return err
}

// RWMutex returns the lock with that name as an RWMutex. Calls with the same name and equal options return the same
// RWMutex. While an RWMutex is in use in this process, held or waited for, an RWMutex with the same name and other
// options fails with an *OptionError, because the two would have to share a lease. The name and the options are checked
// at the first use. An RWMutex that is not in use costs no goroutine and no command, and need not be closed.
func (l *Locker) RWMutex(name string, opts ...MutexOption) *RWMutex {
	l.mustBeMade()
	refused := func(err error) *RWMutex { return &RWMutex{name: name, refused: err} }
	if invalid := settings.CheckName(name); invalid != nil {
		return refused((*OptionError)(invalid))
	}
	defaults := l.defaults
	defaults.MinHold, defaults.Renew = 0, true // its goroutines hand the lock on
	s, err := lockSettings(l, defaults, opts)
	switch {
	case err != nil:
		return refused(err)
	case s.MinHold > 0:
		return refused(&OptionError{"WithMinHold", s.MinHold, "is not for an RWMutex"})
	case !s.Renew:
		return refused(&OptionError{"WithoutRenewal", "set", "is not for an RWMutex"})
	}
	return l.mutexes.get(name, s, func() *RWMutex {
		m := &RWMutex{
			locker: l, name: name, settings: s, terms: l.terms, released: &releasedError{name}, block: firstBlock,
		}
		m.token = m.Token
		// WithMaxWait also covers the local queue, and WithMaxHold applies to a section: this package enforces both.
		if s != l.defaults || s.MaxWait > 0 || s.MaxHold > 0 {
			s.MaxWait, s.MaxHold = 0, 0
			m.terms = s.Prepare()
		}
		return m
	})
}

// TryDo is Do with a single attempt: if another client holds the lock or waits for it, fn does not run, and TryDo
// returns false and nil. It is for work that one of many processes has to do: docs/integrations.md. Over a quorum
// several attempts at the same moment may all be refused, so that fn runs in no process. ran reports whether fn ran;
// any other failure of the attempt is the error of TryLock.
func (l *Locker) TryDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption,
) (ran bool, err error) {
	return l.do(ctx, engine.Request{Name: name, Mode: Write, Entry: engine.Try}, fn, opts)
}

// TryRDo is TryDo for reading.
func (l *Locker) TryRDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...LockOption,
) (ran bool, err error) {
	return l.do(ctx, engine.Request{Name: name, Mode: Read, Entry: engine.Try}, fn, opts)
}

// DoAll runs fn under MultiLease.Context while it holds all the locks, as Do does under one lock. If LockAll fails, fn
// does not run and the error is LockAll's. Each lease that was lost while fn ran adds its *LostError to fn's error.
func (l *Locker) DoAll(
	ctx context.Context, wants []Want, fn func(context.Context) error, opts ...LockOption,
) error {
	if fn == nil {
		return errNilFn
	}
	all, err := l.LockAll(ctx, wants, opts...)
	return run(ctx, all, err, fn)
}

// do runs fn under one lock. A single attempt that met a holder is no failure.
func (l *Locker) do(
	ctx context.Context, r engine.Request, fn func(context.Context) error, opts []LockOption,
) (ran bool, failed error) {
	if fn == nil {
		return false, errNilFn
	}
	lease, err := l.acquire(ctx, r, time.Time{}, opts)
	if refused, ok := err.(*AcquireError); ok && r.Entry == engine.Try && refused.Err == nil {
		return false, nil
	}
	return err == nil, run(ctx, lease, err, fn)
}

var errNilFn = &OptionError{"fn", "nil", "must be a function"}

// held is what run holds while fn runs: a *Lease or a *MultiLease.
type held interface {
	Context(parent context.Context) context.Context
	end(ctx context.Context) (losses []error)
}

// run runs fn under the context of what is held, and releases it also when fn fails or panics. err is the error of the
// acquisition, if it failed. run returns a loss even if fn returned nil. It returns each loss once: fn may have noticed
// it and returned it already.
func run(ctx context.Context, h held, err error, fn func(context.Context) error) (failed error) {
	if err != nil {
		return err
	}
	defer func() { failed = errs.Outcome(failed, h.end(ctx)...) }()
	return fn(h.Context(ctx))
}

// acquire makes every Lease, for a call whose wait began then, or now if that is zero. It checks the caller's arguments
// before anything is sent. Acquisitions without options share the terms of the locker: terms have the arguments of
// scripts as text, which would otherwise be formatted for every acquisition.
func (l *Locker) acquire(ctx context.Context, r engine.Request, begun time.Time, opts []LockOption) (*Lease, error) {
	l.mustBeMade()
	if invalid := settings.CheckName(r.Name); invalid != nil {
		return nil, (*OptionError)(invalid)
	}
	if r.Terms = l.terms; len(opts) > 0 || r.Entry == engine.Join {
		s, err := lockSettings(l, l.defaults, opts)
		if err != nil {
			return nil, err
		}
		if r.Entry == engine.Join {
			s.MinHold = 0 // the hold that it joins may have one
		}
		r.Terms = s.Prepare()
	}
	return l.request(ctx, r, begun)
}

// request is an acquisition whose options have been checked.
func (l *Locker) request(ctx context.Context, r engine.Request, begun time.Time) (*Lease, error) {
	if r.Entry == engine.Wait {
		if err := nested(ctx, l, r.Name, r.Owner); err != nil {
			return nil, err
		}
	}
	within := ctx
	if limit := r.Terms.MaxWait; limit > 0 && r.Entry != engine.Try {
		if begun.IsZero() {
			begun = time.Now()
		}
		var cancel context.CancelFunc
		within, cancel = limited(ctx, limit, begun)
		defer cancel()
	}
	// The engine fills the lease, so the lease and its hold are one allocation.
	lease := &Lease{locker: l, owned: r.Owner != ""}
	if err := l.engine.Acquire(within, &lease.inner, r); err != nil {
		if err = convertError(err); ctx.Err() == nil && within.Err() != nil {
			err = asWaited(err, time.Since(begun), ctx, within)
		}
		return nil, err
	}
	return lease, nil
}

// acquireAll makes every MultiLease. It checks the caller's arguments before anything is sent. Each lock is asked for
// as all says, which has no name and mode; outer is nil without an owner.
func (l *Locker) acquireAll(
	ctx context.Context, wants []Want, all engine.Request, begun time.Time, outer owners.Outer, opts []LockOption,
) (*MultiLease, error) {
	l.mustBeMade()
	sorted, invalid := settings.InOrder(wants)
	if invalid != nil {
		return nil, (*OptionError)(invalid)
	}
	s, err := lockSettings(l, l.defaults, opts)
	if err != nil {
		return nil, err
	}
	limit := time.Duration(0)
	if all.Entry == engine.Wait {
		limit = s.MaxWait
		for _, w := range wants {
			if err := nested(ctx, l, w.Name, all.Owner); err != nil {
				return nil, err
			}
		}
	}
	within, cancel := limited(ctx, limit, begun)
	defer cancel()
	all.Terms = s.Prepare()
	m := &MultiLease{leases: make([]*Lease, len(wants))}
	locks := engine.MultiLock{
		Requests: make([]engine.Request, len(wants)),
		Lease: func(i int) *engine.Lease {
			lease := &Lease{locker: l, owned: all.Owner != ""}
			m.leases[sorted[i]] = lease
			return &lease.inner
		},
		MayWait: func(name string) error { return l.mayWait(ctx, name, all.Owner, outer) },
		Accept: func() error {
			if outer == nil {
				return nil
			}
			return outer.Accept()
		},
	}
	for i, at := range sorted {
		all.Name, all.Mode = wants[at].Name, wants[at].Mode
		locks.Requests[i] = all
	}
	if err := locks.Acquire(within, l.engine); err != nil {
		return nil, asWaited(convertError(err), time.Since(begun), ctx, within)
	}
	return m, nil
}

// mayWait returns ErrLockOrder if a call must not wait for this lock, because the caller holds a later one: another
// caller may hold this lock and wait for that one. Sections of other owners do not count, as in nested.
func (l *Locker) mayWait(ctx context.Context, name, owner string, outer owners.Outer) error {
	for c := innermostLease(ctx); c != nil; c = innermostLease(c.Context.Context) {
		lease := c.lease
		if lease.locker != l || lease.Name() <= name || owner != "" && lease.owned && lease.Owner() != owner {
			continue
		}
		if c.stands() {
			return fmt.Errorf("%w: lock %q is not free, and the section that ctx comes from holds lock %q",
				ErrLockOrder, name, lease.Name())
		}
	}
	if outer == nil {
		return nil
	}
	return outer.MayWait(name)
}

// lockSettings returns the defaults with the options of one acquisition or one RWMutex applied. It refuses a longer TTL
// than the masters know: their quarantine would end before such a lease, if a master forgot it.
func lockSettings[O MutexOption](l *Locker, s settings.Lock, opts []O) (settings.Lock, error) {
	for _, opt := range opts {
		if any(opt) == nil {
			return s, &OptionError{"option", "nil", "must not be nil"}
		}
		opt.ApplyMutex(&s)
	}
	if invalid := s.Check(); invalid != nil {
		return s, (*OptionError)(invalid)
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

// Stats returns the counters.
func (l *Locker) Stats() Stats {
	l.mustBeMade()
	s, lingering := l.engine.Stats(), 0 // which may have changed when Stats returns
	for m := range l.mutexes.each() {
		m.mu.Lock()
		if m.idleHold() != nil {
			lingering++
		}
		m.unlock()
	}
	return Stats{
		Held: s.Held, Waiting: s.Waiting, Unreachable: s.Unreachable, NoMessages: s.NoMessages,
		Lingering: lingering,
		Acquired:  s.Acquired, Contended: s.Contended, HandedOff: s.HandedOff, Adopted: s.Adopted,
		Detached: s.Detached,
		Failed:   FailedStats(s.Failed),
		Lost: LostStats{
			Gone: s.Lost[lockerr.Taken], NotRenewed: s.Lost[lockerr.Unreachable], Paused: s.Lost[lockerr.Paused],
			MaxHold: s.Lost[lockerr.MaxHold], Broken: s.Lost[lockerr.Broken],
		},
		Expired: s.Lost[lockerr.Expired], Unconfirmed: s.Unconfirmed,
		Renewed: s.Renewed, RenewFailed: s.RenewFailed, EventsDropped: s.EventsDropped,
	}
}

// Logger returns the logger of WithLogger. It is for packages that make lockers and have something to say about them.
func (l *Locker) Logger() *slog.Logger {
	l.mustBeMade()
	return l.logger
}

// Close ends the locker: waiters fail with ErrClosed, leases are released, and no goroutine is left when Close returns,
// but for one that runs a function of Trace or Logger that still blocks. It waits at most the release timeout for the
// masters, and the same time again for these functions; with a client that is not from Dial also for a connection that
// is being opened, until the client's Dialer.Timeout. Then it closes the clients of a locker from Open, and that of
// WithOwnedClient; the caller owns the other ones. Close returns nil; each call waits as the first does.
func (l *Locker) Close() error {
	l.mustBeMade()
	l.mutexes.close()
	l.engine.Close()
	if l.owned != nil {
		l.owned.closed.Do(l.owned.close)
	}
	return nil
}

// clients are those that the Locker closes.
type clients struct {
	all    []rueidis.Client
	closed sync.Once
}

func (c *clients) close() {
	for _, client := range c.all {
		client.Close()
	}
}
