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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

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
	switch status {
	case statusOK:
		return statusOK
	case statusUsage:
		return statusWrong
	}
	return statusNoAnswer
}

const lockHelp = `
Without a command one lock is held until standard input ends, with a line of JSON for each event.

The command runs without a shell, in a process group of its own, and gets the signals that fencelock gets. If the lock
cannot be renewed, the group gets SIGTERM when a third of the TTL is left, and SIGKILL before the servers may let the
next holder in. A "fencelock break" is heard of by the next renewal: then the group gets SIGTERM. If the lock is lost
already, it gets SIGKILL at once.
FENCELOCK_NAME, FENCELOCK_TOKEN and FENCELOCK_OWNER are in the environment of the command; of several locks,
FENCELOCK_NAME_1 and so on. A "fencelock lock" inside it for one of these locks joins it.

The exit status is the command's; 128 and the number of the signal that ended it; 127 if it is not found, 126 if it
cannot be run; or
  120  the lock is held by another: with -try, or when -wait is over
  121  too few servers answer, or they refuse; without a command, the events cannot be written
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

	conn    *connection // nil without one
	holds   []*reentrant.Hold
	signals chan os.Signal
	over    chan error // why await is to return

	printing sync.Mutex    // guards printed
	printed  chan struct{} // closed when all lines so far are written; nil before the first
}

func defineLock(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	l := &lock{signals: make(chan os.Signal, 16), over: make(chan error, 1)}
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
		l.session, s.target.ttl, s.target.quarantine = s, l.ttl, *quarantine
		if wrong := l.mistake(); wrong != "" {
			fmt.Fprintf(l.errs, "fencelock lock: %s\n", wrong)
			return 0, errUsage
		}
		return l.run(context.WithoutCancel(ctx)) // the signals are passed on, and end nothing here
	}
}

// mistake returns what is wrong in the command line, or "".
func (l *lock) mistake() string {
	switch {
	case l.command == nil && len(l.names) > 1:
		return "without a command it takes one name: does -- miss before the command?"
	case l.wait < 0 || l.try && l.wait > 0:
		return "-wait must not be negative, and not be given with -try"
	case l.minHold > 0 && l.wait == 0 && !l.try:
		return "-min-hold needs -try or a shorter -wait: another machine would run the command again"
	case l.minHold > 0 && l.wait >= l.minHold:
		return fmt.Sprintf("-wait %v must be shorter than -min-hold %v: another machine would run the command again", l.wait,
			l.minHold)
	}
	return ""
}

// exit is an end with a status of its own, and with a line that says why if there is one.
type exit struct {
	status int
	line   string
}

func (e *exit) Error() string { return e.line }

// bySignal is the end by a signal.
func bySignal(sig os.Signal) *exit {
	number, _ := sig.(syscall.Signal)
	return &exit{128 + int(number), ""}
}

func (l *lock) run(ctx context.Context) (int, error) {
	signal.Notify(l.signals, passedOn...)
	defer signal.Stop(l.signals)
	l.target.by = cmp.Or(l.meta, l.describe())
	if l.quiet {
		l.errs = io.Discard
	}
	err := l.acquire(ctx)
	if err == nil {
		work := l.runCommand
		if l.command == nil {
			work = l.untilInputEnds
		}
		err = l.release(ctx, work())
	}
	if l.conn != nil {
		l.conn.close()
	}
	ended, ok := errors.AsType[*exit](err)
	if ok && ended.line != "" {
		l.say("%s", ended.line)
	}
	if l.printed != nil {
		<-l.printed
	}
	switch {
	case ok:
		return ended.status, nil
	case err != nil && l.quiet && !errors.Is(err, rwlock.ErrOption):
		return statusNoAnswer, nil
	}
	return statusOK, err
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

// acquire connects and takes the locks. A signal ends it.
func (l *lock) acquire(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { l.over <- l.take(ctx) }()
	err := l.await(nil, func(e event) {
		if e.sig != nil && ends(e.sig) {
			end(bySignal(e.sig))
		}
	})
	if err = cmp.Or(context.Cause(ctx), err); err != nil {
		_ = l.release(ctx, nil)
	}
	return err
}

// take joins the locks that an outer fencelock holds, and takes the rest together.
func (l *lock) take(ctx context.Context) (err error) {
	if l.conn, err = l.target.connect(ctx); err != nil {
		return err
	}
	slow := time.AfterFunc(2*time.Second, func() {
		l.say("waiting for lock %s", printable(strings.Join(l.names, ", ")))
	})
	defer slow.Stop()
	opts := []rwlock.LockOption{rwlock.WithTTL(l.ttl)}
	for _, o := range []struct {
		d    time.Duration
		with func(time.Duration) rwlock.LockOption
	}{{l.minHold, rwlock.WithMinHold}, {l.maxHold, rwlock.WithMaxHold}, {l.wait, rwlock.WithMaxWait}} {
		if o.d != 0 {
			opts = append(opts, o.with(o.d))
		}
	}
	locks := reentrant.New(l.conn.locker)
	mode, join, all := rwlock.Write, locks.TryLock, locks.LockAll
	if l.shared {
		mode, join = rwlock.Read, locks.TryRLock
	}
	if l.try {
		all = locks.TryLockAll
	}
	outer, wants := l.outerLocks(), []rwlock.Want(nil)
	for _, name := range l.names {
		i := slices.IndexFunc(outer, func(v variables) bool { return v.name == name })
		if i < 0 {
			wants = append(wants, rwlock.Want{Name: name, Mode: mode})
			continue
		}
		hold, err := outer[i].join(ctx, mode, join, opts)
		if err != nil {
			return l.explain(ctx, err)
		}
		l.holds = append(l.holds, hold)
	}
	if len(wants) > 0 {
		taken, err := all(reentrant.WithOwner(ctx), wants, opts...)
		if err != nil {
			return l.explain(ctx, err)
		}
		l.holds = append(l.holds, taken.Holds()...)
	}
	return nil
}

// explain names the holder of a lock that was not taken, and says since when it has it.
func (l *lock) explain(ctx context.Context, err error) error {
	held, ok := errors.AsType[*rwlock.AcquireError](err)
	if !ok {
		return err
	}
	if l.okIfHeld {
		return &exit{statusOK, ""}
	}
	ctx, cancel := context.WithTimeout(ctx, l.target.timeout)
	defer cancel()
	state, _ := l.conn.locker.Inspect(ctx, held.Name)
	for _, h := range state.Holders {
		if held.Holder != nil && h.Hold == held.Holder.Hold {
			return &exit{statusHeld, fmt.Sprintf("lock %s is held for %v by %s since %s, hold %s", printable(held.Name), h.Mode,
				printable(h.Meta), brief(h.Held), h.Hold)}
		}
	}
	return &exit{statusHeld, plain(held)}
}

// release gives the locks back. It returns end, or a loss of a lock in place of it.
func (l *lock) release(ctx context.Context, end error) error {
	for _, hold := range l.holds {
		switch err := hold.Release(ctx); {
		case errors.Is(err, rwlock.ErrLost):
			end = &exit{statusLost, ""}
			l.event("lost", hold, plain(err))
			l.say("%s", plain(err))
		case err != nil:
			l.event("released", hold, plain(err))
			l.say("the lock ends with its TTL, since its release failed: %s", plain(err))
		default:
			l.event("released", hold, "")
		}
	}
	return end
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
	l.print(l.out, string(text)+"\n")
}

func (l *lock) say(format string, args ...any) {
	l.print(l.errs, fmt.Sprintf("fencelock: "+format+"\n", args...))
}

// print writes a line after those before it, and does not wait for that. The output may be a pipe that no process
// reads, or a terminal that Ctrl-S stops: the command is ended in time, and the locks are released, all the same.
func (l *lock) print(w io.Writer, line string) {
	l.printing.Lock()
	defer l.printing.Unlock()
	before, printed := l.printed, make(chan struct{})
	l.printed = printed
	go func() {
		defer close(printed)
		if before != nil {
			<-before
		}
		if _, err := io.WriteString(w, line); err != nil && w == l.out {
			l.end(&exit{statusNoAnswer, fmt.Sprintf("standard output: %v", err)})
		}
	}()
}
