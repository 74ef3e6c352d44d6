//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// No process reads standard error: the command ends in time all the same, with all that it has started.
func TestLockEndsItsCommandWithoutAReader(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string]bool{"a full pipe": false, "a closed pipe": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.StartBinary(t, binary(t))
			read, write, err := os.Pipe()
			require.NoError(t, err)
			t.Cleanup(func() { _ = read.Close() })
			if closed {
				require.NoError(t, read.Close())
			} else {
				fill(t, write)
			}
			p := asProcess(t, urlOf(server), append([]string{"lock", patience, "-ttl", "6s", "orders"},
				shell(`trap '' TERM; sh -c 'trap "" TERM; echo "$$ is inside"; `+until+`'; :`)...)...)
			p.cmd.Stderr = write
			p.start()
			require.NoError(t, write.Close())
			p.says("is inside")
			id := expect.NoError(strconv.Atoi(strings.Fields(p.out.String())[1])).In(t)
			server.Freeze()
			require.Eventually(t, func() bool {
				return syscall.Kill(id, 0) == syscall.ESRCH
			}, testkit.Patience, time.Millisecond)
			server.Thaw()
			require.Equal(t, statusOK, startLock(t, urlOf(server), "orders", "--", "true").status())
			if !closed {
				text := expect.NoError(io.ReadAll(read)).In(t)
				require.Contains(t, string(text), "lock orders is not renewed")
			}
			require.Equal(t, statusLost, p.status())
		})
	}
}

// Another program learns from the events that it has the lock. Where they cannot be written, it does not hold the lock
// on.
func TestLockWithoutItsOutput(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	read, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	full := expect.NoError(os.OpenFile("/dev/full", os.O_WRONLY, 0)).In(t)
	for says, out := range map[string]*os.File{"broken pipe": closed, "no space left": full} {
		p := asProcess(t, urlOf(server), "lock", patience, "orders")
		p.cmd.Stdout = out
		expect.NoError(p.cmd.StdinPipe()).In(t)
		p.start()
		require.Equal(t, statusNoAnswer, p.status())
		require.Contains(t, p.errs.String(), "standard output: ")
		require.Contains(t, p.errs.String(), says)
		require.NoError(t, out.Close())
		require.Equal(t, statusOK, startLock(t, urlOf(server), "-try", "orders", "--", "true").status())
	}
}

// fill writes to a pipe until it is full.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	require.NoError(t, w.SetWriteDeadline(time.Now().Add(time.Second)))
	for err := error(nil); err == nil; {
		_, err = w.Write(bytes.Repeat([]byte("x"), 1<<12))
	}
}

// A signal that nohup has it ignore ends neither it nor its command, and Ctrl-Z stops neither.
func TestLockGoesOn(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	for name, c := range map[string]struct {
		before string
		sent   []os.Signal
		says   string
	}{
		"nohup":  {"trap '' HUP INT", []os.Signal{syscall.SIGHUP, syscall.SIGINT}, ""},
		"Ctrl-Z": {":", []os.Signal{syscall.SIGTSTP}, "the command goes on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := asProcess(t, urlOf(server))
			env := p.cmd.Env
			p.cmd = exec.Command("sh", "-c", c.before+`; exec "$FENCELOCK" lock `+name+
				` -- sh -c "trap 'exit 3' USR1; echo runs; `+until+`"`)
			p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, &p.out, &p.errs
			p.start()
			p.says("runs")
			for _, sig := range c.sent {
				p.signal(sig)
			}
			said := func() bool { return strings.Contains(p.errs.String(), c.says) }
			require.Eventually(t, said, testkit.Patience, time.Millisecond, "%s", &p.errs)
			p.signal(syscall.SIGUSR1) // signals that arrive at once have no order
			require.Equal(t, 3, p.status(), "%s", &p.errs)
		})
	}
}

// A command that stood still with fencelock does not go on before the loss of its lock is seen.
func TestLockSeesALossBeforeItGoesOn(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	locker := application(t, server.Option())
	h, err := reentrant.New(locker).Lock(reentrant.WithOwner(t.Context()), "orders", rwlock.WithTTL(time.Second))
	require.NoError(t, err)
	commandOn(t, server, "FLUSHALL")
	<-h.Context(t.Context()).Done()
	const often = 30 // Go chooses at random among the channels that are ready
	for range often {
		l := &lock{signals: make(chan os.Signal, 1), over: make(chan error, 1), ttl: time.Second}
		l.signals <- syscall.SIGCONT
		var first []event
		require.NoError(t, l.await([]*reentrant.Hold{h}, func(e event) {
			first = append(first, e)
			l.end(nil)
		}))
		require.Nil(t, first[0].sig)
	}
}
