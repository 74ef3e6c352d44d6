package ticks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/rwlock"
)

// Ticks claims ticks in one Redis or Cluster. New makes one. It is safe for concurrent use and has nothing to close;
// the client remains the caller's.
type Ticks struct {
	client rueidis.Client
	guard  *redisguard.Guard
	by     string           // this process, as the register names it
	clock  func() time.Time // of this process
	ahead  atomic.Int64     // by how much the server's clock is ahead of it, as last seen
}

// New returns a Ticks that works through client, such as one from rwlock.Dial. A nil client is refused.
func New(client rueidis.Client) (*Ticks, error) {
	guard, err := redisguard.New(client)
	if err != nil {
		return nil, fmt.Errorf("ticks: %w", err)
	}
	return &Ticks{client: client, guard: guard, by: settings.Default().Lock.Meta, clock: time.Now}, nil
}

// Option is for one call of Do.
type Option func(*call)

type call struct {
	within   time.Duration
	locker   *rwlock.Locker
	lockOpts []rwlock.LockOption
	refused  error
}

// Within bounds how long Do tries to claim the tick: while no server answers, and while the tick is not due by the
// server's clock. It is one minute by default, and must be positive. For rare ticks choose more: the tick is missed if
// the server is away for longer. More than a period is of no use.
func Within(d time.Duration) Option {
	return func(c *call) {
		if c.within = d; d <= 0 {
			c.refused = malformed("Within", d.String(), "must be positive")
		}
	}
}

// WithoutOverlap lets no two runs of the job overlap: the process that has claimed the tick works under the lock of the
// job's name, taken by TryDo. If an earlier run has the lock, the tick is skipped. After a run that was killed this
// lasts until the TTL of its lock is over.
func WithoutOverlap(locker *rwlock.Locker, opts ...rwlock.LockOption) Option {
	return func(c *call) {
		c.locker, c.lockOpts = locker, opts
		if locker == nil {
			c.refused = malformed("locker", "nil", "must not be nil")
		}
	}
}

// ErrAhead reports a tick that is not due by the server's clock. It comes as an [*AheadError].
var ErrAhead = errors.New("ticks: the tick is ahead of the server's clock")

// AheadError is the refusal of a tick that would be due too late for the limit of [Within]; it matches [ErrAhead]. The
// clock of this process is wrong, or that of the server, or due is. Nothing was claimed.
type AheadError struct {
	Job    string
	Due    time.Time
	Server time.Time     // the server's clock
	Within time.Duration // what was left of the limit
}

// Error names the job, the tick, how far it is ahead, and the limit.
func (e *AheadError) Error() string {
	return fmt.Sprintf("%v: job %q, the tick of %s is due in %v and must be within %v: compare the clocks",
		ErrAhead, e.Job, text(e.Due), e.Due.Sub(e.Server), (e.Within + time.Millisecond - 1).Truncate(time.Millisecond))
}

// Unwrap returns [ErrAhead].
func (e *AheadError) Unwrap() error { return ErrAhead }

// Do claims the tick of a job and, if this process is the first, runs work. due is the time at which the tick is due,
// the same in all processes, to the microsecond. The context of work is ctx with the fence of the tick. Do returns
//
//   - true and the error of work. The tick counts as run: Do does not repeat it.
//   - false and nil if another process has claimed this tick.
//   - false and an error that matches [fencing.ErrStale] if a later tick was claimed: this process is late.
//   - false and an [*AheadError] if the tick is not due by the server's clock. Up to the limit of [Within] Do waits.
//   - false and an error that matches rwlock.ErrNotAcquired if [WithoutOverlap] has skipped the tick, or another error
//     of TryDo. The tick counts as run.
//   - false and another error if the server has refused the claim, or has not answered up to the limit or the end of
//     ctx. The claim may have been made. Then this tick runs nowhere.
//
// A job's name has 1 to 500 bytes of UTF-8, without { and }. An argument that breaks a rule is an error that matches
// [fencing.ErrMalformed], and nothing is sent.
func (t *Ticks) Do(
	ctx context.Context, job string, due time.Time, work func(context.Context) error, opts ...Option,
) (ran bool, err error) {
	c, f, err := t.check(job, due, work, opts)
	if err != nil {
		return false, fmt.Errorf("ticks: %w", err)
	}
	first, err := t.claim(ctx, job, f, c.within)
	if err != nil {
		return false, fmt.Errorf("ticks: job %q: the tick of %s: %w", job, text(due), err)
	}
	if !first {
		return false, nil
	}
	ctx = fencing.NewContext(ctx, f)
	if c.locker == nil {
		return true, work(ctx)
	}
	ran, err = c.locker.TryDo(ctx, job, work, c.lockOpts...)
	switch {
	case ran:
		return true, err
	case err == nil:
		err = rwlock.ErrNotAcquired
	}
	return false, fmt.Errorf("ticks: job %q: the tick of %s is skipped: %w", job, text(due), err)
}

const maxJob = 500 // bytes; the resource of the fence has "ticks/" in front

func (t *Ticks) check(
	job string, due time.Time, work func(context.Context) error, opts []Option,
) (c call, f fencing.Fence, err error) {
	switch {
	case t == nil || t.guard == nil:
		return c, f, errors.New("the zero Ticks, make it with New")
	case len(job) > maxJob:
		return c, f, malformed("job", job[:32]+"...", fmt.Sprintf("has more than %d bytes", maxJob))
	case job == "":
		return c, f, malformed("job", job, "is empty")
	case strings.ContainsAny(job, "{}"):
		return c, f, malformed("job", job, "has a { or a }")
	case work == nil:
		return c, f, malformed("work", "nil", "must not be nil")
	case due.UnixMicro() <= 0:
		return c, f, malformed("due", text(due), "must be after 1970")
	}
	c.within = time.Minute
	for _, opt := range opts {
		if opt == nil {
			return c, f, malformed("option", "nil", "must not be nil")
		}
		if opt(&c); c.refused != nil {
			return c, f, c.refused
		}
	}
	f = fencing.Fence{Resource: "ticks/" + job, Token: fencing.Token(due.UnixMicro()), Mode: fencing.Write}
	return c, f, f.Validate()
}

func malformed(what, input, reason string) error {
	return &fencing.MalformedError{What: what, Input: input, Reason: reason}
}

// text is how the register and the errors write a due time.
func text(due time.Time) string {
	return time.UnixMicro(due.UnixMicro()).UTC().Format(time.RFC3339Nano)
}

// The verdicts of the script.
const (
	taken  = 0 // by another attempt
	first  = 1 // this attempt has the tick
	notDue = 2 // by the server's clock
)

// claiming gives a tick to the first attempt that asks for it.
//
//	KEYS   the claim of the job, a hash of the newest tick and the attempt that has it
//	ARGV   the due time in microseconds, the same as text, the attempt
//	Reply  {verdict, the server's clock in microseconds}
//	Twice  the same attempt has the same verdict
//	Cost   TIME, HMGET, for the first one HSET, and the guard's
//
// The guard has refused ticks before the newest one. One that is not due must not raise the register: it would refuse
// all ticks before it, such as those of a year.
var claiming = redisguard.NewScriptIf(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if tonumber(ARGV[1]) > now then return {2, now} end`, `
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local claimed = redis.call('HMGET', KEYS[1], 'tick', 'by')
if claimed[1] ~= ARGV[2] then
  redis.call('HSET', KEYS[1], 'tick', ARGV[2], 'by', ARGV[3])
  return {1, now}
end
return {claimed[2] == ARGV[3] and 1 or 0, now}`)

// claim asks until it has a verdict. A claim without an answer may have been made, so the same attempt asks again.
func (t *Ticks) claim(ctx context.Context, job string, f fencing.Fence, within time.Duration) (bool, error) {
	due := time.UnixMicro(int64(f.Token))
	keys := []string{"ticks:{" + job + "}"}
	args := []string{f.Token.String(), text(due), t.by + " " + rand.Text()}
	ctx, cancel := context.WithTimeoutCause(ctx, within, &noAnswer{within})
	defer cancel()
	for failure := error(nil); ; {
		const pause = 50 * time.Millisecond
		wait := pause
		verdict, server, err := t.ask(ctx, f, keys, args)
		if ctx.Err() == nil || failure == nil { // the end of ctx says less than the failure before
			failure = err
		}
		switch {
		case err == nil && verdict != notDue:
			return verdict == first, nil
		case err == nil:
			wait = due.Sub(server)
			if end, _ := ctx.Deadline(); wait > time.Until(end) {
				return false, &AheadError{Job: job, Due: due, Server: server, Within: max(0, time.Until(end))}
			}
		case isFinal(err):
			return false, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if errors.Is(failure, context.Cause(ctx)) {
				return false, failure
			}
			return false, errs.Join(errs.Cause(ctx), failure)
		}
	}
}

// noAnswer is the end of the limit.
type noAnswer struct{ within time.Duration }

func (e *noAnswer) Error() string { return fmt.Sprintf("not claimed within %v", e.within) }

// isFinal reports whether asking again is useless.
func isFinal(err error) bool {
	for _, final := range []error{
		fencing.ErrStale, fencing.ErrMissing, fencing.ErrMalformed, redisguard.ErrEvicts, rueidis.ErrClosing,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return transport.Lasts(err)
}

func (t *Ticks) ask(
	ctx context.Context, f fencing.Fence, keys, args []string,
) (verdict int64, server time.Time, err error) {
	begun := t.clock()
	reply, err := t.guard.Do(ctx, f, claiming, keys, args)
	if err != nil {
		return 0, server, err
	}
	numbers, err := reply.AsIntSlice()
	if err == nil && len(numbers) != 2 {
		err = fmt.Errorf("a reply of %d numbers", len(numbers))
	}
	if err != nil {
		return 0, server, err
	}
	server = time.UnixMicro(numbers[1])
	t.saw(server, begun)
	return numbers[0], server, nil
}

// saw notes how far the server's clock is ahead. What took long says little.
func (t *Ticks) saw(server, begun time.Time) {
	const rough = time.Second
	if took := t.clock().Sub(begun); took >= 0 && took < rough {
		t.ahead.Store(int64(server.Sub(begun.Round(0).Add(took / 2))))
	}
}

// Every yields the due times of ticks that are a period apart, each when it is due, until ctx ends. They are multiples
// of the period since the year 1 in UTC, as of [time.Time.Truncate], so all processes have the same ones. It waits by
// the server's clock: it asks for that at the start, and Do learns it by the way.
//
// Like a time.Ticker it leaves out the ticks that pass while the loop is busy; after that, or after a pause of the
// process, it goes on with the newest one. It panics if the period is not positive.
func (t *Ticks) Every(ctx context.Context, period time.Duration) iter.Seq[time.Time] {
	if period <= 0 {
		panic("ticks: Every with a period that is not positive")
	}
	return func(yield func(time.Time) bool) {
		t.askForTime(ctx)
		for last := t.now().Truncate(period); ; {
			due := t.now().Truncate(period)
			if due.After(last) {
				last = due
				if ctx.Err() != nil || !yield(due) {
					return
				}
				continue
			}
			select {
			case <-time.After(last.Add(period).Sub(t.now())):
			case <-ctx.Done():
				return
			}
		}
	}
}

// now is the server's clock, as far as this process knows it.
func (t *Ticks) now() time.Time { return t.clock().Add(time.Duration(t.ahead.Load())) }

// askForTime asks for the server's clock. Without an answer the process goes by its own.
func (t *Ticks) askForTime(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	begun := t.clock()
	parts, err := t.client.Do(ctx, t.client.B().Time().Build()).AsIntSlice()
	if err == nil && len(parts) == 2 {
		t.saw(time.Unix(parts[0], parts[1]*int64(time.Microsecond)), begun)
	}
}

// Nearest returns the tick of a calendar that is nearest to now, for a scheduler that starts a job without its due
// time. next returns the first tick after a time, as the method Next of a cron.Schedule. All processes get the same
// one while they start the job within half of the time between two ticks. It looks back at most ten years, and returns
// the zero time if there is no tick.
//
// For ticks that are a period apart it is time.Now().Round(period).
func Nearest(next func(time.Time) time.Time, now time.Time) time.Time {
	const longest = 10 * 366 * 24 * time.Hour
	after := next(now)
	for back := time.Second; back < longest; back *= 2 {
		tick := next(now.Add(-back))
		if tick.IsZero() || tick.After(now) {
			continue
		}
		for later := next(tick); !later.IsZero() && !later.After(now); later = next(tick) {
			tick = later
		}
		if after.IsZero() || now.Sub(tick) <= after.Sub(now) {
			return tick
		}
		break
	}
	return after
}
