package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// runCommand runs the command under the locks, and returns its exit.
func (l *lock) runCommand() error {
	cmd := exec.Command(l.command[0], l.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, l.environment()
	signal.Notify(l.signals, alsoWhileItRuns...)
	g := newGroup(l)
	if err := g.start(cmd); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return &exit{127, err.Error()}
		}
		return &exit{126, err.Error()}
	}
	spared := true // it was not ended because of its locks
	end := l.await(l.holds, func(e event) {
		switch {
		case e.sig != nil:
			g.pass(e.sig)
			return
		case e.atRisk != nil:
			l.say("lock %s %s, and ends in %s: the command is told to end", printable(e.atRisk.Lease().Name()), e.why,
				brief(time.Until(e.atRisk.seen)))
			g.terminate()
		default:
			g.kill()
		}
		spared = false
	})
	g.giveBackTerminal()
	if !spared {
		g.kill() // what the command has started, and has not ended with it
		end = &exit{statusLost, ""}
	}
	return end
}

// start starts the command. The thread that starts it stays until its end: the kernel ends the command when that thread
// ends.
func (g *group) start(cmd *exec.Cmd) error {
	started := make(chan error)
	cmd.SysProcAttr = g.attributes()
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		g.leader = cmd.Process
		started <- err
		if err == nil {
			g.end(&exit{g.wait(cmd), ""})
		}
	}()
	return <-started
}

// untilInputEnds holds the locks for the program that has started this one.
func (l *lock) untilInputEnds() error {
	for _, hold := range l.holds {
		l.event("granted", hold, "")
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.end(nil)
	}()
	return l.await(l.holds, func(e event) {
		switch {
		case e.atRisk != nil:
			l.event("at risk", e.atRisk.Hold, e.why)
		case e.sig == nil:
			l.end(nil) // the release reports the loss
		case ends(e.sig):
			l.end(bySignal(e.sig))
		}
	})
}

// end has await return this, or what was said before.
func (l *lock) end(err error) {
	select {
	case l.over <- err:
	default:
	}
}

// event is a signal, a lock that is at risk, or, with neither, the end of a lock.
type event struct {
	sig    os.Signal
	atRisk *watch
	why    string // it is at risk
}

// await has each event handled until there is an end, and returns that.
func (l *lock) await(holds []*reentrant.Hold, handle func(event)) error {
	ctx := context.Background()
	watched := make([]*watch, len(holds))
	for i, hold := range holds {
		ctx = hold.Context(ctx) // ends with the first of them
		watched[i] = &watch{Hold: hold, ttl: l.ttl}
	}
	lost, timer := ctx.Done(), time.NewTimer(0)
	defer timer.Stop()
	for {
		var sig os.Signal
		select {
		case err := <-l.over:
			return err
		case sig = <-l.signals: // SIGCONT may come after a time in which the lease ended: it goes last
		case <-lost:
			lost = nil
		case <-timer.C:
		}
		next := time.Hour
		for _, w := range watched {
			again, why := w.look()
			if next = min(next, again); why != "" {
				handle(event{atRisk: w, why: why})
			}
		}
		if next <= 0 {
			next = time.Hour // nothing is left to be done then
			handle(event{})
		}
		if sig != nil {
			handle(event{sig: sig})
		}
		timer.Reset(next)
	}
}

// watch is what is known of the end of one lease.
type watch struct {
	*reentrant.Hold
	ttl   time.Duration
	seen  time.Time     // the deadline, as last seen
	third time.Duration // at risk when this is left
	spare time.Duration // over when this is left, in time to end a process group
	told  bool          // it was at risk, and was not renewed since
}

// look returns in how long to look again, 0 if the lease is over or about to be, and why it has become at risk, or "".
func (w *watch) look() (next time.Duration, why string) {
	err, deadline := w.Lease().Err(), w.Lease().Deadline()
	by, broken := errors.AsType[*rwlock.BrokenError](err)
	switch {
	case broken && !by.Now: // the servers keep it until the deadline that it had
		why = "was " + plain(by)
	case err != nil:
		return 0, ""
	case deadline.Sub(w.seen) > time.Millisecond:
		if w.third = w.ttl / 3; w.seen.IsZero() { // a hand-off is short until its first renewal
			w.third = min(w.ttl, time.Until(deadline)) / 3
		}
		w.seen, w.spare, w.told = deadline, min(w.third/4, time.Second/2), false
	}
	left := time.Until(w.seen)
	switch {
	case left <= w.spare:
		return 0, ""
	case w.told:
		return left - w.spare, ""
	case why == "" && left > w.third:
		return min(left-w.third, w.third), ""
	}
	w.told = true
	return left - w.spare, cmp.Or(why, "is not renewed")
}
