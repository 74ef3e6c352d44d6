package sqltest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// workspace is the folder of everything that a run of tests keeps on disk. A process of its own removes it when the run
// has ended, also when the run was killed and could do nothing itself.
type workspace struct {
	dir     string
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

func newWorkspace() (*workspace, error) {
	dir, err := os.MkdirTemp("", "sqltest")
	if err != nil {
		return nil, err
	}
	w := &workspace{dir: dir, remover: exec.Command("/bin/sh", "-c", remove, "sh", dir)}
	// A session of its own: what the terminal sends to the tests is not for it.
	w.remover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if w.alive, err = w.remover.StdinPipe(); err == nil {
		err = w.remover.Start()
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) // the servers run as other users
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return w, nil
}

// folder makes a folder in the workspace.
func (w *workspace) folder(name string) (string, error) { return os.MkdirTemp(w.dir, name) }

// close removes the workspace.
func (w *workspace) close() error {
	if err := errors.Join(w.alive.Close(), w.remover.Wait()); err != nil {
		return fmt.Errorf("sqltest: remove %s: %w", w.dir, err)
	}
	return nil
}
