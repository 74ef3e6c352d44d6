package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// The exit statuses of lock itself. Any other one comes from its command.
const (
	statusHeld      = 120
	statusNoAnswer  = 121
	statusLost      = 122
	statusNotJoined = 123
	statusWrong     = 124
)

// lockStatus converts the exit status of an error: 1 and 2 may come from the command under the lock.
func lockStatus(status int) int {
	return map[int]int{statusOK: statusOK, statusFailed: statusNoAnswer, statusUsage: statusWrong}[status]
}

const lockHelp = `
Without a command one lock is held until standard input ends, with a line of JSON for each event.

The command runs without a shell, in a process group of its own, and gets the signals that fencelock gets. If the lock
cannot be renewed, the group gets SIGTERM when a third of the TTL is left, and SIGKILL before the servers may let the
next holder in; if the lock is lost already, SIGKILL at once. FENCELOCK_NAME, FENCELOCK_TOKEN and FENCELOCK_OWNER are in
the environment of the command; of several locks, FENCELOCK_NAME_1 and so on. A "fencelock lock" inside it for one of
these locks joins it.

The exit status is the command's; 128 and the number of the signal that ended it; 127 if it is not found, 126 if it
cannot be run; or
  120  the lock is held by another: with -try, or when -wait is over
  121  too few servers answer, or they refuse
  122  the lock was lost while the command ran
  123  the lock that FENCELOCK_NAME stands for cannot be joined
  124  the command line is wrong

A cron line on several machines, of which one runs the job: -min-hold outlasts the difference of their clocks, and -wait
is shorter, so that no other machine runs the job again.
  0 3 * * *  fencelock lock -min-hold 1m -wait 30s -ok-if-held nightly -- /usr/local/bin/nightly
Migrations, one replica after the other:
  fencelock lock -wait 10m migrations -- migrate up
A script that runs alone or inside another one that holds the lock:
  fencelock lock deploy -- ./restart-all
`

// lock is one call of the sub-command lock.
type lock struct {
	*session
	shared, try, okIfHeld, quiet bool
	wait, ttl, minHold, maxHold  time.Duration
	meta                         string

	locker  *rwlock.Locker
	outer   []outerLock
	holds   []*reentrant.Hold
	signals chan os.Signal
}

func defineLock(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	l := &lock{signals: make(chan os.Signal, 16)}
	flags.BoolVar(&l.shared, "shared", false, "lock for reading: beside other readers, not beside a writer")
	flags.BoolVar(&l.try, "try", false, "do not wait: end with 120 if the lock is held")
	flags.DurationVar(&l.wait, "wait", 0, "how long to wait for the lock; 0 is without an end")
	flags.DurationVar(&l.ttl, "ttl", 10*time.Second, "for how long the servers keep the lock without a renewal")
	flags.DurationVar(&l.minHold, "min-hold", 0, "keep the lock for this time, also if the command ends earlier;\n"+
		"it needs -try or a shorter -wait")
	flags.DurationVar(&l.maxHold, "max-hold", 0, "end the command if it has held the lock for this time; 0 is never")
	flags.StringVar(&l.meta, "meta", "", "what inspect shows of this holder (default host:pid and the command's name)")
	flags.BoolVar(&l.okIfHeld, "ok-if-held", false, "end with 0, without a word, if the lock is held by another")
	flags.BoolVar(&l.quiet, "quiet", false, "print no line of its own, but for a wrong command line")
	quarantine := flags.Duration("quarantine", 0,
		"the longest TTL over several masters: WithQuarantine of the application\n(default 10s)")
	return func(ctx context.Context, s *session) (int, error) {
		l.session, s.target.quarantine = s, *quarantine
		return l.run(context.WithoutCancel(ctx)) // the signals are passed on, and end nothing here
	}
}

func (l *lock) run(ctx context.Context) (status int, err error) {
	l.outer, err = outerLocks(l.getenv)
	switch {
	case err != nil:
	case l.command == nil && len(l.names) > 1:
		err = errors.New("without a command it takes one name: does -- miss before the command?")
	case l.wait < 0 || l.try && l.wait > 0:
		err = errors.New("-wait must not be negative, and not be given with -try")
	case l.minHold > 0 && l.wait == 0 && !l.try:
		err = errors.New("-min-hold needs -try or a shorter -wait: another machine would run the command again")
	case l.minHold > 0 && l.wait >= l.minHold:
		err = fmt.Errorf("-wait %v must be shorter than -min-hold %v: another machine would run the command again", l.wait,
			l.minHold)
	}
	if err != nil {
		fmt.Fprintf(l.errs, "fencelock lock: %v\n", err)
		return 0, errUsage
	}
	signal.Notify(l.signals, passedOn...)
	defer signal.Stop(l.signals)
	l.target.by = cmp.Or(l.meta, l.describe())
	if l.quiet {
		l.errs = io.Discard
	}
	lines := newAside(l.errs)
	defer lines.end() // after the locks are released
	l.errs = lines
	c, err := l.target.connect()
	if err != nil {
		return l.failure(err)
	}
	defer c.close()
	l.locker = c.locker
	if err = l.acquire(ctx); err != nil {
		return l.failure(err)
	}
	work := l.runCommand
	if l.command == nil {
		work = l.untilInputEnds
	}
	return l.release(ctx, work()), nil
}

// describe names this holder. The arguments of the command stay out: they may hold secrets, and inspect shows the text.
func (l *lock) describe() string {
	host, _ := os.Hostname()
	text := fmt.Sprintf("%s:%d", cmp.Or(host, "unknown"), os.Getpid())
	if l.command != nil {
		text += " " + filepath.Base(l.command[0])
	}
	return text
}

// failure prints why the locks were not taken, and returns the exit status.
func (l *lock) failure(err error) (int, error) {
	held, isHeld := errors.AsType[*rwlock.AcquireError](err)
	ended, isEnded := errors.AsType[*signalled](err)
	refused, isRefused := errors.AsType[*notJoined](err)
	switch {
	case isEnded:
		return ended.status(), nil
	case isRefused:
		fmt.Fprintf(l.errs, "fencelock: %v\n", refused)
		return statusNotJoined, nil
	case isHeld && l.okIfHeld:
		return statusOK, nil
	case isHeld:
		fmt.Fprintf(l.errs, "fencelock: %s\n", l.heldBy(held))
		return statusHeld, nil
	case l.quiet && !errors.Is(err, rwlock.ErrOption):
		return statusNoAnswer, nil
	}
	return 0, l.target.advised(err)
}

// heldBy names the holder of a lock, and says since when it has it.
func (l *lock) heldBy(e *rwlock.AcquireError) string {
	ctx, cancel := context.WithTimeout(context.Background(), l.target.timeout)
	defer cancel()
	state, _ := l.locker.Inspect(ctx, e.Name)
	for _, h := range state.Holders {
		if e.Holder != nil && h.Hold == e.Holder.Hold {
			return fmt.Sprintf("lock %s is held for %v by %s since %s, hold %s", printable(e.Name), h.Mode,
				printable(h.Meta), brief(h.Held), h.Hold)
		}
	}
	return plain(e)
}

// acquire takes the locks. A signal ends it.
func (l *lock) acquire(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	taken := make(chan error, 1)
	go func() { taken <- l.take(ctx) }()
	for slow := time.After(2 * time.Second); ; {
		select {
		case err := <-taken:
			return err
		case <-slow:
			fmt.Fprintf(l.errs, "fencelock: waiting for lock %s\n", printable(strings.Join(l.names, ", ")))
		case sig := <-l.signals:
			if !ends(sig) {
				continue
			}
			ended := &signalled{sig}
			end(ended)
			if <-taken == nil {
				l.release(ctx, 0)
			}
			return ended
		}
	}
}

// take joins the locks that an outer fencelock holds, and takes the rest together.
func (l *lock) take(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			l.release(ctx, 0)
		}
	}()
	locks := reentrant.New(l.locker)
	opts := []rwlock.LockOption{rwlock.WithTTL(l.ttl)}
	for _, o := range []struct {
		d    time.Duration
		with func(time.Duration) rwlock.LockOption
	}{{l.minHold, rwlock.WithMinHold}, {l.maxHold, rwlock.WithMaxHold}, {l.wait, rwlock.WithMaxWait}} {
		if o.d != 0 {
			opts = append(opts, o.with(o.d))
		}
	}
	mode, join, all := rwlock.Write, locks.TryLock, locks.LockAll
	if l.shared {
		mode, join = rwlock.Read, locks.TryRLock
	}
	if l.try {
		all = locks.TryLockAll
	}
	var wants []rwlock.Want
	for _, name := range l.names {
		outer := l.outerLock(name)
		if outer == nil {
			wants = append(wants, rwlock.Want{Name: name, Mode: mode})
			continue
		}
		claim := fencing.NewContext(ctx, fencing.Fence{Resource: name, Token: outer.token, Mode: mode})
		hold, err := join(reentrant.AsOwner(claim, outer.owner), name, opts...)
		if err != nil {
			return outer.notJoined(err)
		}
		l.holds = append(l.holds, hold)
	}
	if len(wants) == 0 {
		return nil
	}
	taken, err := all(reentrant.WithOwner(ctx), wants, opts...)
	if err == nil {
		l.holds = append(l.holds, taken.Holds()...)
	}
	return err
}

// release gives the locks back, and returns the exit status: statusLost in place of status if a lock was lost.
func (l *lock) release(ctx context.Context, status int) int {
	for _, hold := range l.holds {
		switch err := hold.Release(ctx); {
		case errors.Is(err, rwlock.ErrLost):
			status = statusLost
			l.event("lost", hold, plain(err))
			fmt.Fprintf(l.errs, "fencelock: %s\n", plain(err))
		case err != nil:
			l.event("released", hold, plain(err))
			fmt.Fprintf(l.errs, "fencelock: the lock ends with its TTL, since its release failed: %s\n", plain(err))
		default:
			l.event("released", hold, "")
		}
	}
	l.holds = nil
	return status
}

// event prints a line for the program that has started this one without a command.
func (l *lock) event(what string, h *reentrant.Hold, failure string) {
	if l.command != nil {
		return
	}
	text, _ := json.Marshal(struct { // of strings, so it cannot fail
		Event string `json:"event"`
		Name  string `json:"name"`
		Token string `json:"token"`
		Owner string `json:"owner"`
		Error string `json:"error,omitempty"`
	}{what, h.Lease().Name(), h.Token().String(), h.Lease().Owner(), failure})
	fmt.Fprintf(l.out, "%s\n", text)
}
