//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"unsafe"
)

// passedOn are the signals that the command gets, and SIGPIPE, at which this process goes on. alsoWhileItRuns has
// Ctrl-Z, which stops this process while it waits. Without those that nohup, or a shell in the background, has it
// ignore.
var (
	passedOn = slices.DeleteFunc([]os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
		syscall.SIGPIPE,
	}, signal.Ignored)
	alsoWhileItRuns = []os.Signal{syscall.SIGTSTP}
)

// ends reports whether a signal ends a wait.
func ends(sig os.Signal) bool { return sig != syscall.SIGCONT && sig != syscall.SIGPIPE }

// group is the process group of the command.
type group struct {
	*lock
	leader *os.Process
	below  []int    // the groups of commands of inner fencelocks
	tty    *os.File // nil without one
}

func newGroup(l *lock) *group {
	tty, _ := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	return &group{lock: l, tty: tty}
}

// foreground reads or sets the foreground group of a terminal. It is 0 if the file is not the terminal of this process.
func foreground(f *os.File, request uintptr, id int) int {
	group := int32(id)
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&group))); failed != 0 {
		return 0
	}
	return int(group)
}

// attributes has the command begin in the foreground if this process is there and has both its input and its output
// there: else the terminal may belong to another program of the job, such as a pager. Where the kernel can, it ends the
// command when this process ends, in any way.
func (g *group) attributes() *syscall.SysProcAttr {
	own := syscall.Getpgrp()
	a := &syscall.SysProcAttr{
		Setpgid: true, Ctty: int(os.Stdin.Fd()),
		Foreground: foreground(os.Stdin, syscall.TIOCGPGRP, 0) == own && foreground(os.Stdout, syscall.TIOCGPGRP, 0) == own,
	}
	if death := reflect.ValueOf(a).Elem().FieldByName("Pdeathsig"); death.IsValid() {
		death.Set(reflect.ValueOf(syscall.SIGKILL))
	}
	return a
}

// pass passes a signal on.
func (g *group) pass(sig os.Signal) {
	switch sig {
	case syscall.SIGPIPE:
	case syscall.SIGTSTP:
		g.say("the command goes on, since it would keep its lock while it is stopped")
	default:
		_ = syscall.Kill(-g.leader.Pid, sig.(syscall.Signal))
	}
}

// terminate asks the group to end.
func (g *group) terminate() {
	g.lookBelow()
	g.pass(syscall.SIGTERM)
}

// kill ends the group, and the groups below it.
func (g *group) kill() {
	g.lookBelow()
	g.pass(syscall.SIGKILL)
	for _, id := range g.below {
		_ = syscall.Kill(-id, syscall.SIGKILL)
	}
}

// lookBelow finds the process groups below the command, where /proc shows them: an inner fencelock has made one for its
// own command. When the command has ended, its children have another parent.
func (g *group) lookBelow() {
	parents, groups := map[int]int{}, map[int]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		text, _ := os.ReadFile(path) // "id (name) state parent group ..."
		before, after := text, text[bytes.LastIndexByte(text, ')')+1:]
		var id, parent, of int
		var state string
		_, _ = fmt.Sscan(string(before), &id)
		if n, _ := fmt.Sscan(string(after), &state, &parent, &of); n == 3 {
			parents[id], groups[id] = parent, of
		}
	}
	for id, of := range groups {
		for at := id; at != 0; at = parents[at] {
			if at == g.leader.Pid && of != g.leader.Pid {
				g.below = append(g.below, of)
			}
		}
	}
}

// wait returns the exit status of the command as a shell does. A command that Ctrl-Z stops goes on: while it stands
// still its lock would be renewed, and the shell would wait for this process, which does not stop. A command that uses
// the terminal from the background gets it, if this process has it. Else this process stops too: the shell says so, and
// brings it to the foreground. Neither a line of its own for a terminal that stops writers in the background (stty
// tostop) stops this process, nor a program of the job that reads there. The command would ignore these signals too if
// this process did before.
func (g *group) wait(cmd *exec.Cmd) int {
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	for id := cmd.Process.Pid; ; {
		var w syscall.WaitStatus
		switch _, err := syscall.Wait4(id, &w, syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
		case w.Signaled():
			return bySignal(w.Signal()).status
		case err != nil || w.Exited():
			return w.ExitStatus()
		case w.StopSignal() == syscall.SIGTSTP:
			g.pass(syscall.SIGTSTP)
			g.pass(syscall.SIGCONT)
		case w.StopSignal() == syscall.SIGTTIN || w.StopSignal() == syscall.SIGTTOU:
			switch foreground(g.tty, syscall.TIOCGPGRP, 0) {
			case syscall.Getpgrp():
				foreground(g.tty, syscall.TIOCSPGRP, id)
				g.pass(syscall.SIGCONT)
			case id:
				g.pass(syscall.SIGCONT)
			default:
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
		}
	}
}

// giveBackTerminal makes this process's group the foreground group again, in place of the command's, or of one that has
// ended. Other programs of the job may have been stopped because they read from the terminal.
func (g *group) giveBackTerminal() {
	now := foreground(g.tty, syscall.TIOCGPGRP, 0)
	if now > 0 && (now == g.leader.Pid || syscall.Kill(-now, 0) == syscall.ESRCH) {
		foreground(g.tty, syscall.TIOCSPGRP, syscall.Getpgrp())
		_ = syscall.Kill(0, syscall.SIGCONT)
	}
}
