package reentrant

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/owners"
	"github.com/seed74116694/fencelock/rwlock"
)

// The causes, for errors.Is. The messages name the lock. All other errors are those of package rwlock.
var (
	ErrNoOwner = errors.New("reentrant: no owner in the context, attach one with WithOwner")
	ErrOrder   = errors.New("reentrant: hold released out of order") // a nested hold is not released
	ErrDepth   = errors.New("reentrant: nested too deep")            // the limit of WithMaxDepth
)

// errBusy ends a TryLock during an acquisition of the same owner whose result is still open.
var errBusy = errors.New("another goroutine with the same owner is acquiring it")

// Locker takes locks for the owners that contexts name. It is safe for concurrent use. A process needs one for each
// rwlock.Locker: two Lockers do not share their holds. New makes one: the zero value panics.
type Locker struct {
	remote   *rwlock.Locker
	maxDepth int
	invalid  error // the first argument of New that broke a rule, or nil

	mu       sync.Mutex // never held during a call of the remote locker or of a lease
	sections map[sectionKey]*section
}

// New returns a Locker over l. The caller still has to close l; the Locker itself needs no Close. If an argument breaks
// a rule, every acquisition fails with the *rwlock.OptionError that describes it.
func New(l *rwlock.Locker, opts ...Option) *Locker {
	locker := &Locker{remote: l, maxDepth: defaultMaxDepth, sections: make(map[sectionKey]*section)}
	if l == nil {
		locker.refuse("locker", "nil", "must be a locker")
	}
	for _, opt := range opts {
		if opt == nil {
			locker.refuse("option", "nil", "must not be nil")
			continue
		}
		opt(locker)
	}
	return locker
}

// Lock takes the lock for writing, for the owner in ctx. The owner's first acquisition is an rwlock.Locker.Lock, with
// its options and errors; under AsOwner it first tries to join, in a single attempt. A nested acquisition shares the
// existing lease, or fails with the lease's *rwlock.LostError, with ErrDepth, or with *rwlock.AcquireError if ctx has
// ended. Inside a read lock it upgrades that lock, which may wait for other readers; see rwlock.Lease.Upgrade for its
// errors. Every Hold must be released, also after a loss.
func (l *Locker) Lock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Write, opts: opts})
}

// TryLock is Lock with a single attempt: it returns *rwlock.AcquireError at once if another client holds the lock or
// waits for it.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Write, try: true, opts: opts})
}

// RLock takes the lock for reading, for the owner in ctx. Inside the owner's write lock it shares that lease, and its
// fence remains a writer's fence.
func (l *Locker) RLock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Read, opts: opts})
}

// TryRLock is RLock with a single attempt.
func (l *Locker) TryRLock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Read, try: true, opts: opts})
}

// request is one acquisition with the caller's arguments.
type request struct {
	name string
	mode rwlock.Mode
	try  bool
	many bool // one of several locks, of which the caller needs all or none
	opts []rwlock.LockOption

	begun time.Time // of the wait, if the call has waited already
}

// remote returns the request to the remote locker.
func (r request) remote(id *identity) engine.Request {
	all := engine.Request{Name: r.name, Mode: r.mode, Owner: id.string, Entry: engine.Wait}
	if r.try {
		all.Entry = engine.Try
	}
	return all
}

func (l *Locker) acquire(ctx context.Context, r request) (*Hold, error) {
	id, err := l.identity(ctx, r.name)
	if err != nil {
		return nil, err
	}
	for {
		s, first := l.section(ctx, id, r.name)
		if first {
			return s.open(ctx, id, r)
		}
		if !s.isOver() {
			if r.begun.IsZero() {
				r.begun = time.Now()
			}
			if err := s.await(ctx, id, r); err != nil {
				return nil, err
			}
		}
		// A section that failed to open, or is closed, is no longer in the table: look again.
		if h, err := s.nest(ctx, id, r); h != nil || err != nil {
			return h, err
		}
	}
}

// identity returns the owner in ctx, for the acquisition of a lock.
func (l *Locker) identity(ctx context.Context, name string) (*identity, error) {
	switch {
	case l.invalid != nil:
		return nil, l.invalid
	case l.sections == nil:
		panic("reentrant: a Locker is made by New")
	}
	id, ok := identityFrom(ctx)
	if !ok {
		return nil, fmt.Errorf("%w: lock %q", ErrNoOwner, name)
	}
	return id, nil
}

// section returns the owner's section of a lock, or enters a new one, which is the first: the caller has to open it.
//
// A fence in ctx claims a hold with its token. An owner may have several read holds of a lock, and the claimed one may
// be in another process. So a section whose lease has another token does not do.
func (l *Locker) section(ctx context.Context, id *identity, name string) (s *section, first bool) {
	key := sectionKey{owner: id.owner, name: name}
	if claim, claimed := fencing.FromContext(ctx, name); claimed && id.joins {
		l.mu.Lock()
		s := l.sections[key]
		l.mu.Unlock()
		if s != nil && (!s.isOver() || s.lease != nil && s.lease.Token() == claim.Token) {
			return s, false
		}
		key.claimed = claim.Token
	}
	return l.enter(key)
}

// Leases is rwlock.Locker.Leases for the leases that were taken through this Locker: Count is the number of the owner's
// holds in this process that share the lease. A wait inside one owner is not listed, and no acquisition that waits.
func (l *Locker) Leases() iter.Seq[rwlock.LeaseState] {
	return func(yield func(rwlock.LeaseState) bool) {
		if l.invalid != nil {
			return
		}
		for s := range l.remote.Leases() {
			if s.Count = l.holds(s); s.Count > 0 && !yield(s) {
				return
			}
		}
	}
}

// holds returns how many holds of this Locker share the lease; 0 also for a lease of another origin.
func (l *Locker) holds(s rwlock.LeaseState) int {
	owner, err := ParseOwner(s.Owner)
	if err != nil || s.Waiting {
		return 0
	}
	for _, claimed := range [...]fencing.Token{0, s.Token} { // the section may have joined a hold with this token
		if lease, depth := l.opened(sectionKey{owner, s.Name, claimed}); depth > 0 && lease.Token() == s.Token {
			return depth
		}
	}
	return 0
}

// opened returns the lease of an open section and the depth of its innermost hold, or depth 0.
func (l *Locker) opened(k sectionKey) (lease *rwlock.Lease, depth int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sections[k]; s != nil && s.innermost != nil {
		return s.lease, s.innermost.depth
	}
	return nil, 0
}

// enter returns the owner's section of a lock. If first is true, the caller has to open the section.
func (l *Locker) enter(k sectionKey) (s *section, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sections[k]; s != nil {
		return s, false
	}
	s = &section{locker: l, key: k, opened: make(chan struct{})}
	l.sections[k] = s
	return s, true
}

func (s *section) open(ctx context.Context, id *identity, r request) (h *Hold, err error) {
	defer func() { s.begin(h) }() // also when a hook of the locker panics
	if s.lease, err = s.locker.take(ctx, id, r); err != nil {
		return nil, err
	}
	return &Hold{section: s, depth: 1}, nil
}

// take acquires a lease for an owner that has no lease of this lock in this process.
func (l *Locker) take(ctx context.Context, id *identity, r request) (*rwlock.Lease, error) {
	if id.joins {
		if lease, err := l.join(ctx, id, r); lease != nil || err != nil {
			return lease, err
		}
	}
	return owners.Of(l.remote).Acquire(ctx, r.remote(id), r.begun, r.opts)
}

// join nests in a hold that the owner has on the masters. It returns nil and no error if there is no such hold and ctx
// claims none. A fence in ctx is a claim: the section of the fence relies on the hold with that token. The owner may
// have other holds of the lock too, but none of them replaces it. If it is gone, that is a loss, even if the owner has
// taken the lock again since.
func (l *Locker) join(ctx context.Context, id *identity, r request) (*rwlock.Lease, error) {
	claim, claimed := fencing.FromContext(ctx, r.name)
	joins := r.remote(id)
	joins.Entry, joins.Claimed = engine.Join, claim.Token
	lease, err := owners.Of(l.remote).Acquire(ctx, joins, r.begun, r.opts)
	_, gone := err.(*rwlock.LostError) // not errors.As: the loss of another lock may have ended ctx
	switch {
	case gone && !claimed:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return lease, nil
}

// Option configures a Locker.
type Option func(*Locker)

const defaultMaxDepth = 64

// WithMaxDepth bounds how many holds an owner may have of one lock in this process, the outermost included: 64 by
// default, at least 1. A further hold is ErrDepth. The limit detects an endless recursion.
func WithMaxDepth(n int) Option {
	return func(l *Locker) {
		l.maxDepth = n
		if n < 1 {
			l.refuse("WithMaxDepth", n, "must be at least 1")
		}
	}
}

// refuse records the first broken rule for the first acquisition. New returns no error, and a silent correction would
// hide the mistake.
func (l *Locker) refuse(option string, value any, rule string) {
	if l.invalid == nil {
		l.invalid = &rwlock.OptionError{Option: option, Value: value, Rule: rule}
	}
}

// Do runs fn while the owner in ctx holds the lock for writing; a ctx without an owner gets a new one. fn runs under
// Hold.Context, which carries the owner too, so Do nests in Do. Do returns fn's error, joined with a *rwlock.LostError
// if the lease was lost while fn ran, and with ErrOrder if fn did not release a hold of this lock. After a loss
// rwlock.Completed reports whether fn had returned nil. When Do returns, also by a panic of fn, its hold has ended and
// so has every hold nested in it: a hold that fn did not release would be renewed for ever.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption) error {
	_, err := l.do(ctx, request{name: name, mode: rwlock.Write, opts: opts}, fn)
	return err
}

// RDo is Do for reading.
func (l *Locker) RDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption,
) error {
	_, err := l.do(ctx, request{name: name, mode: rwlock.Read, opts: opts}, fn)
	return err
}

// TryDo is Do with a single attempt: if another owner holds the lock or waits for it, fn does not run, and TryDo
// returns false and nil. ran reports whether fn ran; any other failure of the attempt is the error of TryLock.
func (l *Locker) TryDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption,
) (ran bool, err error) {
	return l.do(ctx, request{name: name, mode: rwlock.Write, try: true, opts: opts}, fn)
}

// TryRDo is TryDo for reading.
func (l *Locker) TryRDo(
	ctx context.Context, name string, fn func(context.Context) error, opts ...rwlock.LockOption,
) (ran bool, err error) {
	return l.do(ctx, request{name: name, mode: rwlock.Read, try: true, opts: opts}, fn)
}

// do runs fn under one lock. A single attempt that met a holder is no failure.
func (l *Locker) do(ctx context.Context, r request, fn func(context.Context) error) (ran bool, failed error) {
	if fn == nil {
		return false, errNilFn
	}
	ctx = WithOwner(ctx)
	hold, err := l.acquire(ctx, r)
	if refused, ok := err.(*rwlock.AcquireError); ok && r.try && refused.Err == nil {
		return false, nil
	}
	return err == nil, run(ctx, hold, err, fn)
}

var errNilFn = &rwlock.OptionError{Option: "fn", Value: "nil", Rule: "must be a function"}

// held is what run holds while fn runs: a *Hold or a *MultiHold.
type held interface {
	Context(parent context.Context) context.Context
	leave(ctx context.Context, forced bool) (failures []error, order error)
}

// run returns the losses among the failures: an unconfirmed release continues in the background.
func run(ctx context.Context, h held, err error, fn func(context.Context) error) (failed error) {
	if err != nil {
		return err
	}
	defer func() {
		failures, order := h.leave(ctx, true)
		losses := slices.DeleteFunc(failures, func(err error) bool { return !isLoss(err) })
		failed = errs.Join(errs.Outcome(failed, losses...), order)
	}()
	return fn(h.Context(ctx))
}
