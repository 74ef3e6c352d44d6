package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/seed74116694/fencelock/reentrant"
)

// signalled is the end by a signal.
type signalled struct{ sig os.Signal }

func (e *signalled) Error() string { return e.sig.String() }

func (e *signalled) status() int {
	number, _ := e.sig.(syscall.Signal)
	return 128 + int(number)
}

// runCommand runs the command under the locks, and returns its exit status.
func (l *lock) runCommand() int {
	cmd := exec.Command(l.command[0], l.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, l.environment()
	g := &group{terminal: ownTerminal(), errs: l.errs}
	cmd.SysProcAttr = g.attributes()
	l.goOn()
	ended, err := g.start(cmd)
	if err != nil {
		fmt.Fprintf(l.errs, "fencelock: %v\n", err)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return 127
		}
		return 126
	}
	l.goOnWriting()
	spared := true // it was not ended because of its locks
	for e := range l.events(ended) {
		spared = spared && e.sig != nil
		switch {
		case e.sig != nil:
			g.signal(e.sig)
		case e.atRisk != nil:
			fmt.Fprintf(l.errs, "fencelock: lock %s is not renewed, and ends in %s: the command is told to end\n",
				printable(e.atRisk.Lease().Name()), brief(time.Until(e.atRisk.Lease().Deadline())))
			g.lookBelow()
			g.signal(syscall.SIGTERM)
		default:
			g.lookBelow()
			g.kill()
		}
	}
	g.giveBackTerminal()
	if spared {
		return g.status
	}
	g.kill() // what the command has started, and has not ended with it
	return statusLost
}

// start starts the command, and returns a channel that is closed when it has ended. The thread that starts it stays
// until then: the kernel ends the command when that thread ends.
func (g *group) start(cmd *exec.Cmd) (<-chan struct{}, error) {
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		g.leader = cmd.Process
		started <- err
		if err == nil {
			g.status = g.wait(cmd)
			close(ended)
		}
	}()
	return ended, <-started
}

// untilInputEnds holds the locks for the program that has started this one.
func (l *lock) untilInputEnds() int {
	for _, hold := range l.holds {
		l.event("granted", hold, "")
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for e := range l.events(ended) {
		switch {
		case e.atRisk != nil:
			l.event("at risk", e.atRisk, "")
		case e.sig == nil:
			return 0 // the release reports the loss
		case ends(e.sig):
			return (&signalled{e.sig}).status()
		}
	}
	return 0
}

// event is a signal, a lock that is at risk, or, with neither, the end of a lock.
type event struct {
	sig    os.Signal
	atRisk *reentrant.Hold
}

// events yields what happens until ended is closed.
func (l *lock) events(ended <-chan struct{}) iter.Seq[event] {
	return func(yield func(event) bool) {
		ctx := context.Background()
		watched := make([]*watch, len(l.holds))
		for i, hold := range l.holds {
			ctx = hold.Context(ctx) // ends with the first of them
			watched[i] = &watch{Hold: hold, ttl: l.ttl}
		}
		lost, timer := ctx.Done(), time.NewTimer(0)
		defer timer.Stop()
		for {
			var sig os.Signal
			select {
			case <-ended:
				return
			case sig = <-l.signals: // SIGCONT may come after a time in which the lease ended: it goes last
			case <-lost:
				lost = nil
			case <-timer.C:
			}
			next := time.Hour
			for _, w := range watched {
				left, atRisk := w.look()
				if next = min(next, left); atRisk && !yield(event{atRisk: w.Hold}) {
					return
				}
			}
			if next <= 0 {
				if next = time.Hour; !yield(event{}) { // once: nothing is left to be done then
					return
				}
			}
			if sig != nil && !yield(event{sig: sig}) {
				return
			}
			timer.Reset(next)
		}
	}
}

// watch is what is known of the end of one lease.
type watch struct {
	*reentrant.Hold
	ttl   time.Duration
	seen  time.Time     // the deadline, as last seen
	third time.Duration // at risk when this is left; 0 after it was reported
	spare time.Duration // over when this is left, in time to end a process group
}

// look returns in how long to look again, 0 if the lease is over or about to be, and whether it has become at risk.
func (w *watch) look() (next time.Duration, atRisk bool) {
	deadline := w.Lease().Deadline()
	left := time.Until(deadline)
	if deadline.After(w.seen) {
		if w.third = w.ttl / 3; w.seen.IsZero() { // a hand-off is short until its first renewal
			w.third = min(w.ttl, left) / 3
		}
		w.seen, w.spare = deadline, min(w.third/4, time.Second/2)
	}
	switch {
	case w.Lease().Err() != nil || left <= w.spare:
		return 0, false
	case left > w.third:
		return left - max(w.third, w.spare), false
	}
	w.third = 0
	return left - w.spare, true
}
