//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"io"
	"os"
	"os/exec"
	"syscall"
)

// passedOn are the signals that end the command.
var passedOn = []os.Signal{os.Interrupt}

// group is the command alone: what it has started goes on when it is ended, since this system has no process groups.
type group struct {
	terminal bool
	leader   *os.Process
	status   int
	errs     io.Writer
}

func (l *lock) goOn() {}

func (l *lock) goOnWriting() {}

func ends(os.Signal) bool { return true }

func ownTerminal() bool { return false }

func (g *group) attributes() *syscall.SysProcAttr { return nil }

// signal ends the command: this system has no other signal.
func (g *group) signal(os.Signal) { _ = g.leader.Kill() }

func (g *group) kill() { g.signal(nil) }

func (g *group) lookBelow() {}

func (g *group) giveBackTerminal() {}

func (g *group) wait(cmd *exec.Cmd) int {
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
