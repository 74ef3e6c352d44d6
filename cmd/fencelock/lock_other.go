//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// passedOn are the signals that end the command.
var passedOn, alsoWhileItRuns = []os.Signal{os.Interrupt}, []os.Signal{os.Interrupt}

func ends(os.Signal) bool { return true }

// group is the command alone: what it has started goes on when it is ended, since this system has no process groups and
// no other signal.
type group struct {
	*lock
	leader *os.Process
}

func newGroup(l *lock) *group { return &group{lock: l} }

func (g *group) attributes() *syscall.SysProcAttr { return nil }

func (g *group) pass(os.Signal) { g.kill() }

func (g *group) terminate() { g.kill() }

func (g *group) kill() { _ = g.leader.Kill() }

func (g *group) giveBackTerminal() {}

func (g *group) wait(cmd *exec.Cmd) int {
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
