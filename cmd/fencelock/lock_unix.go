//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"unsafe"
)

// passedOn are the signals that the command gets, without those that nohup, or a shell in the background, has this
// process ignore.
var passedOn = slices.DeleteFunc([]os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
}, signal.Ignored)

// goOn lets this process go on while its command runs, so that it can end the command: at a line for a pipe that no
// process reads any more, and at Ctrl-Z, which is passed to l. It is called before the command begins.
func (l *lock) goOn() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Notify(l.signals, syscall.SIGTSTP)
}

// goOnWriting lets this process go on at a line for a terminal whose foreground the command has (stty tostop). It is
// called once the command has begun, for the command would ignore the signal too.
func (l *lock) goOnWriting() { signal.Ignore(syscall.SIGTTOU) }

// ends reports whether a signal ends a wait.
func ends(sig os.Signal) bool { return sig != syscall.SIGCONT }

// group is the process group of the command.
type group struct {
	terminal bool // standard input is a terminal, in whose foreground the group runs
	leader   *os.Process
	below    []int // the groups of commands of inner fencelocks
	status   int   // once it has ended
	errs     io.Writer
}

// ownTerminal reports whether standard input is the terminal in whose foreground this process runs.
func ownTerminal() bool {
	var foreground int32
	return terminalGroup(syscall.TIOCGPGRP, &foreground) && int(foreground) == syscall.Getpgrp()
}

// terminalGroup reads or sets the foreground group of the terminal of standard input.
func terminalGroup(request uintptr, id *int32) bool {
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), request, uintptr(unsafe.Pointer(id)))
	return failed == 0
}

func (g *group) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Foreground: g.terminal, Ctty: int(os.Stdin.Fd())}
	endWithParent(a)
	return a
}

// kill ends the group, and the groups that lookBelow has found.
func (g *group) kill() {
	g.signal(syscall.SIGKILL)
	for _, id := range g.below {
		_ = syscall.Kill(-id, syscall.SIGKILL)
	}
}

// signal sends a signal to the group. An error means that all of it has ended. SIGCONT comes from a shell that has
// brought this job to the foreground: the group gets the terminal too.
func (g *group) signal(sig os.Signal) {
	if sig == syscall.SIGTSTP {
		g.refuseToStop()
		return
	}
	id := int32(g.leader.Pid)
	if sig == syscall.SIGCONT && ownTerminal() {
		g.terminal = terminalGroup(syscall.TIOCSPGRP, &id)
	}
	_ = syscall.Kill(-int(id), sig.(syscall.Signal))
}

// wait returns the exit status of the command as a shell does. A command that Ctrl-Z stops goes on: while it stands
// still its lock would be renewed, and the shell would wait for this process, which does not stop.
func (g *group) wait(cmd *exec.Cmd) int {
	for {
		var w syscall.WaitStatus
		switch _, err := syscall.Wait4(cmd.Process.Pid, &w, syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
		case w.Signaled():
			return (&signalled{w.Signal()}).status()
		case err != nil || w.Exited():
			return w.ExitStatus()
		case w.StopSignal() == syscall.SIGTSTP:
			g.refuseToStop()
			g.signal(syscall.SIGCONT)
		case w.StopSignal() == syscall.SIGTTIN || w.StopSignal() == syscall.SIGTTOU:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the shell says so, and goes on with both in the foreground
		}
	}
}

func (g *group) refuseToStop() {
	fmt.Fprintln(g.errs, "fencelock: the command goes on, since it would keep its lock while it is stopped")
}

// giveBackTerminal makes this process's group the foreground group again. The kernel stops a background process that
// tries so, unless it ignores SIGTTOU: see goOnWriting.
func (g *group) giveBackTerminal() {
	if g.terminal {
		own := int32(syscall.Getpgrp())
		terminalGroup(syscall.TIOCSPGRP, &own)
	}
}
