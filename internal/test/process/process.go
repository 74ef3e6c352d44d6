//go:build unix

// Package process starts the servers of tests and measurements: on free ports, under unprivileged accounts, and so that
// each ends with the process that has started it.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Process is one run of a program.
type Process struct {
	*exec.Cmd
	Ended chan struct{} // closed when it was waited for
	Err   error         // of its end; to be read after that
}

// Start starts the program, on a thread that lives as long as the process does: the signal by which the kernel ends it
// together with this one is bound to the thread, not to the process as a whole.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr)
	p := &Process{cmd, make(chan struct{}), nil}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
		}
		close(p.Ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Kill ends the process as a crash does, and waits for that. It may have ended by itself.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	<-p.Ended
}

// End sends a signal and waits for the end. A process that takes too long is killed.
func (p *Process) End(with os.Signal) {
	_ = p.Process.Signal(with)
	select {
	case <-p.Ended:
	case <-time.After(20 * time.Second):
		p.Kill()
	}
}

// Run runs a program to its end; its output is part of the error.
func Run(cmd *exec.Cmd) error {
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, output)
	}
	return nil
}

// Unprivileged gives a folder to the account to run a server as, and returns what sets it for a command: in place of
// root the named one, or else the account "nobody".
func Unprivileged(name, folder string) (func(*exec.Cmd) *exec.Cmd, error) {
	if os.Geteuid() != 0 {
		return func(cmd *exec.Cmd) *exec.Cmd { return cmd }, nil
	}
	account, err := user.Lookup(name)
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return func(cmd *exec.Cmd) *exec.Cmd {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}, os.Chown(folder, int(uid), int(gid))
}
