package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Nothing that another process has chosen controls the terminal, and what is JSON stays JSON.
func TestTerminal(t *testing.T) {
	for text, shown := range map[string]string{
		"plain äöü 語 … 🔒\n": "plain äöü 語 … 🔒\n",
		"\x1b[2J":           `\u001b[2J`,
		"\x9b31m":           `\x9b31m`,
		"\u009b31m\x7f\r\t": `\u009b31m\u007f\u000d` + "\t",
		"\u202egnp":         `\u202egnp`,
		"\U000e0001\xff":    `\udb40\udc01\xff`,
	} {
		var out bytes.Buffer
		n, err := terminal{&out}.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.Equal(t, shown, out.String())
	}
	var out bytes.Buffer
	meta := "a\x1b\u009b\x7f\u202e\U000e0001"
	state := rwlock.State{Name: "x", Holders: []rwlock.Holder{{Meta: meta}}}
	require.NoError(t, printJSON(terminal{&out}, state, nil))
	require.NotContains(t, out.String(), "\u009b")
	var read jsonState
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Equal(t, meta, read.Holders[0].Meta)
	require.Equal(t, `"\x9b31mred"`, printable("\x9b31mred"))
	require.Equal(t, `lock: \nok`, plain(fmt.Errorf("rwlock: lock: \nok")))
}

// An answer with a length that no server gives ends the connection, however it arrives.
func TestBoundedConn(t *testing.T) {
	good := "*2\r\n$5\r\n*9\r\n$\r\n%1\r\n+" + strings.Repeat("long", 99) + "\r\n:1\r\n$-1\r\n*-1\r\n*0\r\n_\r\n" +
		"$?\r\n;4\r\n$999\r\n;0\r\n=6\r\ntxt:$9\r\n#t\r\n"
	read := func(text string, size int) (string, error) {
		client, server := net.Pipe()
		defer func() { _ = client.Close() }()
		go func() {
			for part := text; part != ""; part = part[min(size, len(part)):] {
				_, _ = server.Write([]byte(part[:min(size, len(part))]))
			}
			_ = server.Close()
		}()
		got, err := io.ReadAll(&boundedConn{Conn: client})
		return string(got), err
	}
	for size := 1; size < len(good); size += 3 {
		got, err := read(good, size)
		require.NoError(t, err)
		require.Equal(t, good, got)
		for header, says := range map[string]string{
			"*4611686018427387904":        "a list of 4611686018427387904 elements",
			"*2000000000":                 "a list of 2000000000 elements",
			"%2000000000":                 "a list of 2000000000 elements",
			"$9000000000000000000":        "a text of 9000000000000000000 bytes",
			"$99999999999999999999":       "a text of 9223372036854775807 bytes",
			strings.Repeat("*1\r\n", 200): "101 deep",
		} {
			_, err := read(good+header+"\r\n", size)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, "it is broken, or no Redis")
		}
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	server := testredis.StartBinary(t, binary(t), "--unixsocket", socket)
	app := application(t, server.Option())
	at := "-addr=" + server.Addr()
	long := "orders:" + strings.Repeat("long", 20) + ":end"
	hold(t, app, long, rwlock.WithMeta("web-1"))
	require.Eventually(t, func() bool { // times are in whole milliseconds
		state, err := app.Inspect(t.Context(), long)
		return err == nil && state.Holders[0].Held > 2*time.Millisecond
	}, testkit.Patience, time.Millisecond)
	hold(t, app, "b", rwlock.WithMeta("web-2"))
	queue(t, app, "b", rwlock.WithMeta("web-3"))
	tick := hold(t, app, "tick", rwlock.WithMinHold(time.Hour))
	require.NoError(t, tick.Release(t.Context()))
	first := func(flags string) string {
		got := fencelock(t, append(strings.Fields("list "+flags), at, patience)...)
		require.Zero(t, got.status, got.errs)
		lines := strings.Split(got.out, "\n")
		return strings.Fields(lines[1])[0]
	}
	require.Equal(t, "b", first(""))
	require.Equal(t, "orders:longlonglonglongl…onglonglonglonglong:end", first("-sort held"))
	require.Equal(t, long, first("-sort held -wide"))
	require.Equal(t, "b", first("-sort waiting"))
	require.Contains(t, fencelock(t, "REDIS_URL=unix://"+socket, "list", patience).out, "web-2", "by the socket")
	got := fencelock(t, "list", at, patience, "-limit", "2")
	require.Equal(t, 3, strings.Count(got.out, "\n"), got.out)
	require.Contains(t, got.errs, "1 more locks are not shown")
	got = fencelock(t, "list", at, patience, "-limit", "1", "-sort", "held", "-json")
	require.Equal(t, 1, strings.Count(got.out, "\n"), got.out)
	require.Contains(t, got.out, long)
	for _, flags := range []string{"-sort size", "-limit -1"} {
		require.Equal(t, statusUsage, fencelock(t, append(strings.Fields("list "+flags), at)...).status)
	}

	// A hold that its process has released stands for its minimum, and is no dead holder.
	got = fencelock(t, "inspect", "tick", at, patience)
	require.Regexp(t, `(?m)^\S+ +write +\S+ +(59m|1h)\S+ +\S+ +\S+ +-, ended +1$`, got.out)
	got = fencelock(t, "inspect", "tick", at, patience, "-json")
	require.Contains(t, got.out, `"ended":true`)
	got = fencelock(t, "watch", "tick", at, patience, "-for", "1s")
	require.Regexp(t, `  ended    write  \S+  \S+, stands for its minimum, (59m|1h)`, got.out)
	got = fencelock(t, "break", "tick", at, patience, "-token", tick.Token().String(), "-reason", "x")
	require.Equal(t, statusNo, got.status, got.errs)
}
