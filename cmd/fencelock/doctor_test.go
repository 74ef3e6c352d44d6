package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// The rights that doctor asks for are those of SECURITY.md, and the one of list.
func TestDoctorAsksForTheDocumentedRights(t *testing.T) {
	for heading, deployment := range map[string]target{
		testkit.ACLEachServer:          {},
		"Behind Sentinel, in addition": {sentinel: "m"},
		"In a Cluster, in addition":    {cluster: true},
	} {
		asked := map[string]bool{}
		for _, r := range rights {
			if r.only == nil || r.only(&deployment) {
				name, _, _ := strings.Cut(r.command, " ")
				asked["+"+name] = true
			}
		}
		require.True(t, asked["+scan"])
		delete(asked, "+scan")
		documented := map[string]bool{}
		for _, rule := range aclLine(t, heading) {
			if strings.HasPrefix(rule, "+") && rule != "+@connection" {
				documented[rule] = true
			}
		}
		require.Equal(t, documented, asked, heading)
	}
}

// finds checks that doctor has a line of this level and check, which has the text, and names the advice below it.
func finds(t *testing.T, got ran, level, check, text, advice string) {
	t.Helper()
	pattern := `(?m)^` + level + ` +\S+ +` + check + ` .*` + regexp.QuoteMeta(text) + `.*`
	if advice != "" {
		pattern += `\n +-> .*` + regexp.QuoteMeta(advice)
	}
	require.Regexp(t, pattern, got.out, got.errs)
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	at := "REDIS_URL=redis://" + server.Addr()
	asUser := "REDIS_URL=redis://locks:secret@" + server.Addr()

	got := fencelock(t, at, "doctor", patience)
	require.Zero(t, got.status, got.out)
	for _, check := range []string{"latency", "version", "scripts", "rights", "messages", "eviction", "role", "clock"} {
		finds(t, got, "ok", check, "", "")
	}
	require.NotContains(t, got.out, "->")

	commandOn(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	got = fencelock(t, at, "doctor", patience)
	require.Equal(t, statusNo, got.status)
	finds(t, got, "warning", "eviction", "allkeys-lru", "noeviction")
	commandOn(t, server, "CONFIG", "SET", "maxmemory", "100mb")
	got = fencelock(t, at, "doctor", patience, "-json")
	require.Equal(t, statusFailed, got.status)
	require.Contains(t, got.out, `"level":"error"`)
	commandOn(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")

	commandOn(t, server, aclLine(t, testkit.ACLEachServer)...)
	got = fencelock(t, asUser, "doctor", patience)
	require.Zero(t, got.status, got.out)
	finds(t, got, "ok", "rights", "+scan", "ACL SETUSER locks")
	finds(t, got, "ok", "rights", "may do all that locks need", "")

	for _, c := range []struct {
		rule, level, check, text, advice string
		status                           int
	}{
		{
			"-zadd", "error", "rights",
			"+zadd: locks do not work", "ACL SETUSER locks ~fencelock:* &fencelock:c:* +zadd", statusFailed,
		},
		{"-publish", "warning", "rights", "+publish", "+publish", statusNo},
		{"-publish", "warning", "messages", "publish", "ask at an interval", statusNo},
		{"-subscribe", "warning", "messages", "subscribe", "ask at an interval", statusNo},
		{"resetchannels", "warning", "messages", "channel", "&fencelock:c:*", statusNo},
		{"-info", "warning", "info", "info", "+info", statusNo},
		{"-eval", "error", "scripts", "eval", "+eval", statusFailed},
		{"-time", "error", "connection", "time", "SECURITY.md", statusFailed},
		{"resetkeys", "error", "scripts", "key", "~fencelock:*", statusFailed},
	} {
		commandOn(t, server, "ACL", "SETUSER", "locks", c.rule)
		got := fencelock(t, asUser, "doctor", patience)
		finds(t, got, c.level, c.check, c.text, c.advice)
		require.Equal(t, c.status, got.status, c.rule)
		commandOn(t, server, aclLine(t, testkit.ACLEachServer)...)
	}
}

func TestDoctorFindsAReplica(t *testing.T) {
	t.Parallel()
	master, replica := testredis.StartBinary(t, binary(t)), testredis.StartBinary(t, binary(t))
	replica.ReplicaOf(master)
	got := fencelock(t, "doctor", "-addr", replica.Addr(), patience)
	require.Equal(t, statusFailed, got.status)
	finds(t, got, "error", "role", "replica of "+master.Addr(), "its master")
	got = fencelock(t, "doctor", "-addr", master.Addr(), patience)
	finds(t, got, "ok|warning", "replicas", replica.Addr(), "")
}

// What cannot be reached is said with what to do, and with a status, by every sub-command.
func TestNoServer(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t), "--requirepass", "right")
	tls := testredis.StartTLS(t, binary(t))
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	for _, c := range []struct {
		flags, says, advice string
		status              int
	}{
		{"-addr 127.0.0.1:1", "connection refused", "is it running", statusFailed},
		{"-addr 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "127.0.0.1:3", "is it running", statusFailed},
		{"-addr 127.0.0.1:1,127.0.0.1:2", "odd number", "all masters of the quorum", statusUsage},
		{"-addr " + server.Addr(), "NOAUTH", "FENCELOCK_PASSWORD", statusFailed},
		{"-password wrong -addr " + server.Addr(), "WRONGPASS", "-password", statusFailed},
		{"-password right -tls -addr " + server.Addr(), "", "leave -tls out", statusFailed},
		{"-sentinel-password right -sentinel m -addr " + server.Addr(), "no sentinels", "leave -sentinel out", statusUsage},
		{"-addr " + tls.TLSAddr(), "", "add -tls", statusFailed},
		{"-tls -addr " + tls.TLSAddr(), "certificate", "-ca", statusFailed},
		{"-addr " + other.Listener.Addr().String(), "unknown message type", "is no Redis", statusFailed},
		{"-addr " + silent.Addr().String(), "", "it hangs, is busy", statusFailed},
	} {
		for _, sub := range []string{"list", "inspect x", "watch x", "doctor"} {
			within := patience
			if c.says == "" { // the server does not answer what it does not understand
				within = "-timeout=1s"
			}
			got := fencelock(t, strings.Fields(sub+" "+within+" "+c.flags)...)
			require.Equal(t, c.status, got.status, "%s %s: %s%s", sub, c.flags, got.out, got.errs)
			require.Contains(t, got.out+got.errs, c.says)
			require.Contains(t, got.out+got.errs, c.advice, "%s %s", sub, c.flags)
		}
	}
	got := fencelock(t, "FENCELOCK_PASSWORD=right", "doctor", "-addr", server.Addr(), patience)
	require.Zero(t, got.status, got.out+got.errs)
}

// A server that refuses every lock is in no order, however well it answers. What doctor sends writes nothing.
func TestDoctorFindsAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := testredis.StartBinary(t, binary(t), "--dir", dir, "--save", "3600 1")
	app := application(t, server.Option())
	examined := func() ran { return fencelock(t, "doctor", "-addr", server.Addr(), patience) }
	refused := func(code, advice string) {
		_, err := app.TryLock(t.Context(), "orders")
		require.ErrorContains(t, err, code, "the lock itself")
		got := examined()
		require.Equal(t, statusFailed, got.status, got.out)
		finds(t, got, "error", "writes", code, advice)
	}
	got := examined()
	require.NotEqual(t, statusFailed, got.status, got.out)
	finds(t, got, "ok", "writes", "accepted", "")
	finds(t, got, "ok", "persistence", "", "")
	keys, err := server.Command("DBSIZE")
	require.NoError(t, err)
	require.Zero(t, keys)

	commandOn(t, server, "CONFIG", "SET", "maxmemory", "1")
	refused("OOM", "raise maxmemory")
	commandOn(t, server, "CONFIG", "SET", "maxmemory", "0")
	commandOn(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
	refused("NOREPLICAS", "min-replicas-to-write")
	commandOn(t, server, "CONFIG", "SET", "min-replicas-to-write", "0")

	commandOn(t, server, "CLIENT", "PAUSE", "3600000", "WRITE")
	got = fencelock(t, "doctor", "-addr", server.Addr(), "-timeout=1s")
	require.Equal(t, statusFailed, got.status, got.out)
	finds(t, got, "error", "scripts", "no reply in 1s", "CLIENT UNPAUSE")
	commandOn(t, server, "CLIENT", "UNPAUSE")

	require.NoError(t, os.RemoveAll(dir))
	commandOn(t, server, "SET", "a", "b")
	_, _ = server.Command("BGSAVE")
	require.Eventually(t, func() bool {
		_, err := server.Command("SET", "a", "c")
		return err != nil && strings.Contains(err.Error(), "MISCONF")
	}, testkit.Patience, 10*time.Millisecond)
	refused("MISCONF", "the server's disk")
	finds(t, examined(), "warning", "persistence", "rdb_last_bgsave_status err", "BGSAVE")
}

func TestDoctorFindsAClusterWithoutSlots(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t), "--cluster-enabled", "yes")
	got := fencelock(t, "doctor", "-cluster", "-addr", server.Addr(), patience)
	require.Equal(t, statusFailed, got.status, got.out+got.errs)
	require.Contains(t, got.out, "no node has slots")
	require.Contains(t, got.out, "--cluster check")
}
