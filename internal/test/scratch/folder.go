//go:build unix

package scratch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Folder is a temporary folder that is removed when the process ends.
type Folder struct {
	path    string
	remover *exec.Cmd
	alive   io.Closer // the remover waits for its end, which comes at the latest when this process ends
}

// remove waits for the end of the standard input. A server that was killed at the same moment may still be writing, so
// it tries several times.
const remove = `trap '' HUP INT QUIT TERM
cat >/dev/null
tries=0
until rm -rf "$1" && [ ! -e "$1" ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ] || exit 1
	sleep 0.1
done`

// New makes a folder. Other users may enter it, because servers run under users of their own.
func New(name string) (*Folder, error) {
	path, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	f := &Folder{path: path, remover: exec.Command("/bin/sh", "-c", remove, "sh", path)}
	// A session of its own keeps the terminal's signals to this process from the remover.
	f.remover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if f.alive, err = f.remover.StdinPipe(); err == nil {
		err = f.remover.Start()
	}
	if err == nil {
		err = os.Chmod(path, 0o755)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return f, nil
}

// Path returns the path of the folder.
func (f *Folder) Path() string { return f.path }

// Close removes the folder and returns when it is gone.
func (f *Folder) Close() error {
	if err := errors.Join(f.alive.Close(), f.remover.Wait()); err != nil {
		return fmt.Errorf("scratch: remove %s: %w", f.path, err)
	}
	return nil
}

// inUse is the folder of this process. The reference keeps the garbage collector from closing the pipe that the remover
// reads.
var inUse *Folder

// Use makes a new folder the temporary folder of this process and of the processes that it starts from now on. main or
// TestMain calls it once. It panics if it cannot make the folder.
func Use(name string) {
	if inUse != nil {
		panic("scratch: this process has its folder already: " + inUse.path)
	}
	f, err := New(name)
	if err == nil {
		inUse, err = f, os.Setenv("TMPDIR", f.path)
	}
	if err != nil {
		panic(fmt.Errorf("scratch: %w", err))
	}
}
