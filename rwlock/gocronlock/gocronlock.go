// Package gocronlock lets gocron run jobs in one of many processes. [Task] is a gocron.Task: each tick of a job runs
// once, claimed in Redis by the time at which it is due, and its work has a fence. [Locker] is a gocron.Locker, which
// does that by a lock that stays taken for a part of the period, also over a quorum. [Elector] is a gocron.Elector: one
// process runs all jobs. The package is a separate module, so that only its users depend on gocron.
//
// To a job under a Locker or an Elector gocron gives a context of its own, which carries no fence and does not end with
// the lock. It also drops the error of Unlock: a loss shows in the log, the Trace and the Stats of the locker only. A
// job with writes that must not come late is a Task.
package gocronlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

// Task returns a task for Scheduler.NewJob of each process: at each tick it claims the tick by [ticks.Ticks.Do], and
// the first process does the work. gocron does not say when the tick was due, so due makes it of the time at which the
// job starts: time.Now().Round(period), or ticks.Nearest of a calendar. The errors of Do go to the job's listeners of
// AfterJobRunsWithError. name is that of the job in Redis. No locker or elector is needed.
func Task(
	t *ticks.Ticks, name string, due func(now time.Time) time.Time, work func(context.Context) error,
	opts ...ticks.Option,
) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		if due == nil {
			return &rwlock.OptionError{Option: "due", Value: "nil", Rule: "must be a function"}
		}
		_, err := t.Do(ctx, name, due(time.Now()), work, opts...)
		return err
	})
}

var (
	_ gocron.Locker  = (*Locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// Locker is for gocron.WithDistributedLocker and gocron.WithDistributedJobLocker. NewLocker makes one, and it is safe
// for concurrent use.
type Locker struct {
	locker *rwlock.Locker
	opts   []rwlock.LockOption
}

// NewLocker returns a Locker. A tick of a job is taken by the first process, and stays taken for minHold, however soon
// the job ends: so a process with a later clock does not run the tick again. Choose minHold between the difference of
// the clocks and the period of the job without that difference; half of the period is a good value. It must be 100 ms
// to 24 h. Jobs with very different periods need a Locker each.
//
// A process waits for the lock for half of minHold, at most for 1 s, so that no wait is longer than the lock stays
// taken. What is left of minHold is the difference of the clocks that it bears. Over a quorum the wait must be longer
// than four round trips, or ticks are missed.
//
// A run that takes longer than minHold keeps the lock until it ends. A process that dies leaves the lock taken for its
// TTL, or for minHold if that is longer. opts are for each lock, but for WithMinHold and WithMaxWait, which are set
// here. An argument that breaks a rule is an *rwlock.OptionError; if opts break a rule, each Lock returns that error.
func NewLocker(l *rwlock.Locker, minHold time.Duration, opts ...rwlock.LockOption) (*Locker, error) {
	if err := check(l, opts); err != nil {
		return nil, err
	}
	if minHold < leastHold || minHold > 24*time.Hour {
		return nil, &rwlock.OptionError{Option: "minHold", Value: minHold, Rule: "must be 100ms to 24h"}
	}
	asks := min(minHold/2, longestWait)
	return &Locker{l, append(slices.Clone(opts), rwlock.WithMinHold(minHold), rwlock.WithMaxWait(asks))}, nil
}

const (
	leastHold   = 100 * time.Millisecond // less is within the delays of a busy machine
	longestWait = time.Second
)

func check(l *rwlock.Locker, opts []rwlock.LockOption) error {
	if l == nil {
		return &rwlock.OptionError{Option: "locker", Value: "nil", Rule: "must not be nil"}
	}
	if slices.Contains(opts, nil) {
		return &rwlock.OptionError{Option: "option", Value: "nil", Rule: "must not be nil"}
	}
	return nil
}

// Lock waits for the lock of the job's name, in the queue, for half of the minimum hold and at most for 1 s. Single
// attempts would not do: over a quorum those of several processes at one moment may all be refused. gocron does not run
// the job if Lock returns an error: it matches rwlock.ErrNotAcquired if another process has this tick, else it is
// another error of Lock. gocron passes it to the job's listeners of AfterLockError.
//
// Give each job a name by gocron.WithName. Without one gocron takes the name of the function, such as main.main.func1,
// and jobs of one function are one job to the lock.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locker.Lock(ctx, key, l.opts...)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *rwlock.Lease }

// Unlock ends the lease. The lock stays taken until its minimum is over. The error is a *rwlock.LostError if the lease
// was lost while the job ran, or another error of Release. gocron drops it.
func (l lock) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// Elector is for gocron.WithDistributedElector. NewElector makes one, and it is safe for concurrent use.
type Elector struct {
	locker  *rwlock.Locker
	name    string
	opts    []rwlock.LockOption
	turn    chan struct{}   // has an item while lease is in use
	lease   *rwlock.Lease   // the latest one, or nil
	refusal error           // of the latest attempt that has failed
	refused time.Time       // when it failed
	closing context.Context // ends with Close
	close   context.CancelFunc
}

// NewElector returns an Elector for the lock of that name, which all processes of a group share. It asks for the lock
// when gocron asks it. The process that gets the lock leads as long as it renews its lease: until Close, or until it is
// lost. If a leader dies, another process leads after the TTL. When the lead changes during a tick, jobs of this tick
// may run in both processes. opts are for each lock, but for WithMaxWait. An argument that breaks a rule is an
// *rwlock.OptionError; if the name or opts break a rule, each IsLeader returns that error.
func NewElector(l *rwlock.Locker, name string, opts ...rwlock.LockOption) (*Elector, error) {
	if err := check(l, opts); err != nil {
		return nil, err
	}
	closing, end := context.WithCancel(context.Background())
	return &Elector{
		locker: l, name: name, opts: append(slices.Clone(opts), rwlock.WithMaxWait(electing)),
		turn: make(chan struct{}, 1), closing: closing, close: end,
	}, nil
}

// electing is how long a process waits for the lead at a tick.
const electing = 500 * time.Millisecond

// ErrClosed is returned by IsLeader after Close.
var ErrClosed = errors.New("gocronlock: elector closed")

// IsLeader returns nil if this process leads. Otherwise it waits for the lead in the queue, for up to 500 ms; calls at
// the same time, as for jobs of one tick, share the wait. gocron does not run a job if IsLeader returns an error: it
// matches rwlock.ErrNotAcquired if another process leads, and is ErrClosed after Close or another error of Lock.
func (e *Elector) IsLeader(ctx context.Context) error {
	called := time.Now()
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case e.closing.Err() != nil:
		return ErrClosed
	case e.lease != nil && e.lease.Err() == nil:
		return nil
	case e.refused.After(called):
		return e.refusal
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.closing, func() { cancel(ErrClosed) })()
	lease, err := e.locker.Lock(within, e.name, e.opts...)
	switch {
	case err == nil:
		e.lease = lease
	case e.closing.Err() != nil:
		return ErrClosed
	case ctx.Err() == nil: // else it failed for its caller alone
		e.refusal, e.refused = err, time.Now()
	}
	return err
}

// Close gives up the lead, so that another process can have it at once. Call it after the scheduler has shut down, and
// before the locker is closed. It returns the error of Release, and nil if this process did not lead.
func (e *Elector) Close() error {
	e.close()
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	lease := e.lease
	e.lease = nil
	if lease == nil || lease.Err() != nil {
		return nil
	}
	return lease.Release(context.Background())
}
