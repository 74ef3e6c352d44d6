package sqltest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the operating system's account that runs a server: the zero value is the account of the test.
type account struct{ credential *syscall.Credential }

// unprivileged returns the account to run a server as: in place of root, the named one, or else the account "nobody".
func unprivileged(name string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		if found, err = user.Lookup("nobody"); err != nil {
			return account{}, err
		}
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return account{}, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return account{}, err
	}
	return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (a account) give(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// attributes set the account of a process, and the signal that keeps it from outliving the tests.
func (a account) attributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Credential: a.credential}
	endWithParent(attributes)
	return attributes
}

// run runs a command to its end; its output is part of the error.
func (a account) run(command *exec.Cmd) error {
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr = a.attributes()
	if err := command.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = command.Process.Kill() })()
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command.Args, err, output.Bytes())
	}
	return nil
}
