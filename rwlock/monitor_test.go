package rwlock_test

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// scriptCall is one run of a script, as a server shows it to MONITOR.
type scriptCall struct {
	script   scripts.Name // "" if it was sent whole
	name     string       // of the lock
	commands int          // that it ran
	words    int          // of these commands, all together
}

// monitor notes what scripts make a server do from now on, until the returned function is called.
func monitor(t *testing.T, server *testredis.Server) (stop func() []scriptCall) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(t, err)
	lines := bufio.NewReader(conn)
	begun, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", begun)

	const last = "that is all"
	noted := make(chan []scriptCall, 1)
	go func() {
		defer close(noted)
		var all []scriptCall
		for {
			line, err := lines.ReadString('\n')
			if err != nil { // also where the test has failed
				return
			}
			if strings.Contains(line, last) {
				noted <- all
				return
			}
			all = note(all, line)
		}
	}()
	return func() []scriptCall {
		t.Helper()
		_, err := server.Command("ECHO", last)
		require.NoError(t, err)
		all, complete := <-noted
		require.True(t, complete, "the server ended MONITOR")
		return all
	}
}

// note adds a line of MONITOR: a script, or a command that the last script runs.
//
//	+1700000000.123456 [0 127.0.0.1:50000] "EVALSHA" "<sum>" "4" "fencelock:{n}" ...
//	+1700000000.123456 [0 lua] "HMGET" "fencelock:{n}" ...
func note(all []scriptCall, line string) []scriptCall {
	_, command, _ := strings.Cut(line, "] ")
	words := strings.Split(strings.TrimSpace(command), `" "`)
	switch {
	case strings.Contains(line, " lua] ") && len(all) > 0:
		last := &all[len(all)-1]
		last.commands++
		last.words += len(words)
	case len(words) > 3 && strings.HasPrefix(strings.ToUpper(words[0]), `"EVAL`):
		_, name, _ := strings.Cut(words[3], "{")
		name, _, _ = strings.Cut(name, "}")
		all = append(all, scriptCall{script: testkit.ScriptOf([]string{"EVALSHA", words[1]}), name: name})
	}
	return all
}
