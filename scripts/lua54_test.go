package scripts_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// Redis and Valkey run scripts in Lua 5.1. There are servers that run them in Lua 5.4, where integers are a type of
// their own: a quotient is none, '%d' refuses a fraction, and a number that is no integer is written as 1.0. So the
// scripts are run by a Lua 5.4 as well.

func TestSequencesInLua54(t *testing.T) {
	inLua54(t, func(e *env) {
		for name, steps := range sequences {
			e.flushAll()
			e.newMarker()
			tokens := map[string]int64{}
			for i, s := range steps {
				e.pass(s.pause)
				e.twice(fmt.Sprintf("%s, step %d", name, i), s, tokens)
			}
			e.pass(2 * ttl * time.Millisecond)
			e.run(refresh())
			e.onlyTokensStay()
		}
	})
}

func TestRandomSequencesInLua54KeepToTheModel(t *testing.T) {
	inLua54(t, func(e *env) {
		for _, quorum := range []bool{false, true} {
			for _, s := range seeds(2) {
				e.flushAll()
				e.t.Logf("-seed=%d", s)
				playRandomly(e, draws(s), quorum, 150)
			}
		}
	})
}

func TestMarkersInLua54(t *testing.T) {
	inLua54(t, func(e *env) {
		marker := func(args ...any) call { return call{scripts.Marker, []string{markerKey}, texts(args)} }
		for _, purpose := range []string{"look", "create", "look", "rejoin", "single"} {
			us := e.now().UnixMicro()
			reply := e.run(marker(purpose, "2", "rules", "01JSET", "1", "a b c", 10_000, "", "", us))
			require.GreaterOrEqual(e.t, reply[0], us, purpose)
		}
		require.Equal(e.t, "0", e.field(markerKey, "until"), "the first start")
	})
}

// lua54 runs scripts in a process of its own. It calls their commands on a real server.
type lua54 struct {
	toLua     io.Writer
	fromLua   *bufio.Reader
	toRedis   io.Writer
	fromRedis *bufio.Reader
}

// inLua54 runs a test whose scripts run in Lua 5.4. Without the interpreter it is skipped; where CI=true it fails.
func inLua54(t *testing.T, test func(e *env)) {
	t.Helper()
	path, err := exec.LookPath("lua5.4")
	if err != nil {
		const missing = "lua5.4 is not on PATH: install the Debian package of this name"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	server := testredis.Start(t)
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	process := exec.Command(path, "testdata/stub.lua54")
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		require.NoError(t, process.Wait())
	})
	l := &lua54{in, bufio.NewReader(out), conn, bufio.NewReader(conn)}
	test(&env{t: t, client: server.Client(t), server: server, lua: l})
}

// run runs a script. Each command that it calls goes to the server, and the reply back to the script.
func (l *lua54) run(c call) (any, error) {
	request := append([]string{scripts.Source(c.script), strconv.Itoa(len(c.keys))}, append(c.keys, c.args...)...)
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(request))
	for _, part := range request {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(part), part)
	}
	if _, err := io.WriteString(l.toLua, text.String()); err != nil {
		return nil, err
	}
	for {
		kind, err := l.fromLua.ReadByte()
		if err != nil {
			return nil, err
		}
		raw, value, err := readRESP(l.fromLua)
		if kind == '=' || err != nil {
			return value, err
		}
		if _, err := io.WriteString(l.toRedis, raw); err != nil {
			return nil, err
		}
		if raw, _, err = readRESP(l.fromRedis); raw == "" {
			return nil, err
		}
		if _, err := io.WriteString(l.toLua, raw); err != nil {
			return nil, err
		}
	}
}

// readRESP reads one value, as it came and as rueidis returns it.
func readRESP(r *bufio.Reader) (raw string, value any, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	rest := strings.TrimSuffix(line[1:], "\r\n")
	n, _ := strconv.ParseInt(rest, 10, 64)
	switch line[0] {
	case ':':
		return line, n, nil
	case '+':
		return line, rest, nil
	case '-':
		return line, nil, errors.New(rest)
	case '$':
		if n < 0 {
			return line, nil, nil
		}
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return "", nil, err
		}
		return line + string(text), string(text[:n]), nil
	default:
		all := make([]any, n)
		for i := range all {
			var part string
			if part, all[i], err = readRESP(r); err != nil {
				return "", nil, err
			}
			line += part
		}
		return line, all, nil
	}
}
