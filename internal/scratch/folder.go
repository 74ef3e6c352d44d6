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

// Folder is a temporary folder that ends with the process.
type Folder struct {
	path    string
	remover *exec.Cmd
	alive   io.Closer // the remover waits for its end, which comes with the end of this process at the latest
}

// remove waits for the end of the standard input. A server that was killed at the same moment may still be writing,
// hence several tries.
const remove = `trap '' HUP INT QUIT TERM
cat >/dev/null
tries=0
until rm -rf "$1" && [ ! -e "$1" ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ] || exit 1
	sleep 0.1
done`

// New makes a folder. Other users may enter it: servers run as users of their own.
func New(name string) (*Folder, error) {
	path, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	f := &Folder{path: path, remover: exec.Command("/bin/sh", "-c", remove, "sh", path)}
	// A session of its own: what the terminal sends to this process is not for it.
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

// Path returns where the folder is.
func (f *Folder) Path() string { return f.path }

// Close removes the folder, and returns when it is gone.
func (f *Folder) Close() error {
	if err := errors.Join(f.alive.Close(), f.remover.Wait()); err != nil {
		return fmt.Errorf("scratch: remove %s: %w", f.path, err)
	}
	return nil
}

// inUse is the folder of this process: without a reference to it, the collector would close what its remover waits for.
var inUse *Folder

// Use gives this process, and those that it starts from now on, a new folder as their temporary one. It is for main and
// TestMain, to be called once, and panics if there can be none.
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
