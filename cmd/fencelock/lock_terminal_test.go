//go:build linux

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// A command on a terminal reads from it, and gets what is typed there: Ctrl-C, Ctrl-D and Ctrl-Z.
func TestLockOnATerminal(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	for name, c := range map[string]struct {
		script string // of the shell on the terminal
		typed  []string
		says   []string // what is awaited before each text is typed, and after the last one
	}{
		"a command that reads": {
			`L one -- cat; echo status $?`,
			[]string{"", "hello\n", "\x04"},
			[]string{"", "", "hello\r\nhello", "status 0"},
		},
		"Ctrl-C": {
			`L two -- sh -c 'echo runs; exec sleep 1000'; echo status $?`, // dash may lose the signal while it forks
			[]string{"\x03"},
			[]string{"runs", "status 130"},
		},
		"Ctrl-Z": {
			`L three -- sh -c 'echo runs; read line; echo got $line'; echo status $?`,
			[]string{"\x1a", "more\n"},
			[]string{"runs", "the command goes on", "got more\r\nstatus 0"},
		},
		"the terminal is given back": {
			`L four -- true; read line; echo got $line`,
			[]string{"more\n"},
			[]string{"", "got more"},
		},
		"while it waits": {
			`L five -- sh -c 'L five-inner -- true; echo runs; L -keys other five -- echo never'`,
			[]string{"\x03"},
			[]string{"runs", ""},
		},
		"brought to the foreground": {
			`set -m; L six -- sh -c 'read line; echo got $line' & ` +
				`until jobs | grep -q Stopped; do sleep 0.05; done; fg; echo status $?`,
			[]string{"more\n"},
			[]string{"", "got more\r\nstatus 0"},
		},
		"a pager that asks": {
			`set -m; L eight -- sh -c 'echo runs; sleep 0.1' | ` +
				`(read -r line; echo asks; read -r answer </dev/tty; echo the pager got $answer); echo status $?`,
			[]string{"more\n"},
			[]string{"asks", "the pager got more\r\nstatus 0"},
		},
		"a command that asks, between pipes": {
			`set -m; echo input | L nine -- sh -c 'read -r x; echo asks >/dev/tty; read -r y </dev/tty; echo got $x $y' | ` +
				`(cat; echo asks again; read -r z </dev/tty; echo then $z); echo status $?`,
			[]string{"more\n", "last\n"},
			[]string{"asks", "got input more\r\nasks again", "then last\r\nstatus 0"},
		},
		"a command that asks beside a pager that asks": {
			`set -m; L ten -- sh -c 'read -r x </dev/tty; echo line; read -r y </dev/tty; sleep 0.1' | ` +
				`(read -r line; echo asks; read -r z </dev/tty; echo the pager got $z); echo status $?`,
			[]string{"one\n", "two\n", "three\n"},
			[]string{"", "asks", "two", "the pager got three\r\nstatus 0"},
		},
		"a line on a terminal that stops writers in the background": {
			`set -m; stty tostop; L -ttl 2s -max-hold 1s seven -- sh -c "trap '' TERM; echo runs; ` + until +
				`"; echo status $?`,
			nil,
			[]string{"status 122"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := testredis.Program(t, "script", "bsdutils")
			self := expect.NoError(filepath.Abs("/proc/self/exe")).In(t)
			self = expect.NoError(filepath.EvalSymlinks(self)).In(t)
			program := strings.ReplaceAll(c.script, "L ", self+" lock "+patience+" ")
			cmd := exec.Command(path, "-qfec", "bash -c '"+strings.ReplaceAll(program, "'", `'\''`)+"'", "/dev/null")
			cmd.Env = append(cmd.Environ(), asCommand+"=1", "FENCELOCK_URL="+urlOf(server))
			var out output
			cmd.Stdout, cmd.Stderr = &out, &out
			in := expect.NoError(cmd.StdinPipe()).In(t)
			require.NoError(t, cmd.Start())
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(ended)
			}()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-ended
			})
			says := func(text string) {
				so := func() bool { return strings.Contains(out.String(), text) }
				require.Eventually(t, so, testkit.Patience, time.Millisecond, "%q in %s", text, &out)
			}
			for i, typed := range c.typed {
				says(c.says[i])
				expect.NoError(in.Write([]byte(typed))).In(t)
			}
			says(c.says[len(c.typed)])
			select {
			case <-ended:
			case <-time.After(testkit.Patience):
				require.FailNow(t, "it does not end", out.String())
			}
		})
	}
}
