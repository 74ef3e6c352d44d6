package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
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

	got := exits(t, statusOK, at, "doctor", patience)
	for _, check := range []string{"latency", "version", "scripts", "rights", "messages", "eviction", "role", "clock"} {
		finds(t, got, "ok", check, "", "")
	}
	require.NotContains(t, got.out, "->")
	finds(t, got, "ok", "rights", "may do all that locks and list need", "")

	commandOn(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	got = exits(t, statusNo, at, "doctor", patience)
	finds(t, got, "warning", "eviction", "allkeys-lru", "noeviction")
	commandOn(t, server, "CONFIG", "SET", "maxmemory", "100mb")
	require.Contains(t, exits(t, statusFailed, at, "doctor", patience, "-json").out, `"level":"error"`)
	commandOn(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")

	commandOn(t, server, aclLine(t, testkit.ACLEachServer)...)
	got = exits(t, statusOK, asUser, "doctor", patience)
	finds(t, got, "ok", "rights", "+scan", "ACL SETUSER locks")
	require.Len(t, regexp.MustCompile(`(?m)^ok .* rights `).FindAllString(got.out, -1), 1, got.out)

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
	got := exits(t, statusFailed, "doctor", "-addr", replica.Addr(), patience)
	finds(t, got, "error", "role", "replica of "+master.Addr(), "its master")
	got = fencelock(t, "doctor", "-addr", master.Addr(), patience)
	finds(t, got, "ok|warning", "replicas", replica.Addr(), "")
}

// What cannot be reached is said with what to do, and with a status, by every sub-command.
func TestNoServer(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t), "--requirepass", "right")
	tls := testredis.StartTLS(t, binary(t))
	twemproxy := testredis.StartTwemproxy(t, server)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	silent := expect.NoError(net.Listen("tcp", "127.0.0.1:0")).In(t)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	for _, c := range []struct {
		flags, says, advice string
		status              int
	}{
		{"-addr 127.0.0.1:1", "connection refused", "is it running", statusFailed},
		{"-addr 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "127.0.0.1:3", "is it running", statusFailed},
		{"-addr 127.0.0.1:1,127.0.0.1:2", "odd number", "all masters of the quorum", statusUsage},
		{"-addr " + server.Addr(), "NOAUTH", "FENCELOCK_PASSWORD", statusFailed},
		{"-password wrong -addr " + server.Addr(), "WRONGPASS", "-password", statusFailed},
		{"-password right -db 99 -addr " + server.Addr(), "DB index", "the server has fewer databases", statusFailed},
		{"-password right -tls -addr " + server.Addr(), "", "leave -tls out", statusFailed},
		{"-sentinel-password right -sentinel m -addr " + server.Addr(), "no sentinels", "leave -sentinel out", statusUsage},
		{"-addr " + tls.TLSAddr(), "", "add -tls", statusFailed},
		{"-tls -addr " + tls.TLSAddr(), "certificate", "-ca", statusFailed},
		{"-addr " + other.Listener.Addr().String(), "unknown message type", "is no Redis", statusFailed},
		{"-addr " + silent.Addr().String(), "", "it hangs, is busy", statusFailed},
		{"-addr " + twemproxy, "first command (HELLO)", "such as twemproxy, cannot carry locks", statusFailed},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			within := patience
			if c.says == "" { // the server does not answer what it does not understand
				within = "-timeout=1s"
			}
			for _, sub := range []string{"list", "inspect x", "watch x", "doctor"} {
				t.Run(sub, func(t *testing.T) {
					t.Parallel()
					got := exits(t, c.status, strings.Fields(sub+" "+within+" "+c.flags)...)
					require.Contains(t, got.out+got.errs, c.says)
					require.Contains(t, got.out+got.errs, c.advice)
				})
			}
		})
	}
	exits(t, statusOK, "FENCELOCK_PASSWORD=right", "doctor", "-addr", server.Addr(), patience)
}

// A server that refuses every lock is in no order, however well it answers. What doctor sends writes nothing.
func TestDoctorFindsAServerThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := testredis.StartBinary(t, binary(t), "--dir", dir, "--save", "3600 1")
	app := application(t, server.Option())
	examined := func() ran { return fencelock(t, "doctor", "-addr", server.Addr(), patience) }
	refused := func(code, advice string) {
		require.ErrorContains(t, expect.ErrorOf(app.TryLock(t.Context(), "orders")), code, "the lock itself")
		got := examined()
		require.Equal(t, statusFailed, got.status, got.out)
		finds(t, got, "error", "writes", code, advice)
	}
	got := examined()
	require.NotEqual(t, statusFailed, got.status, got.out)
	finds(t, got, "ok", "writes", "accepted", "")
	finds(t, got, "ok", "persistence", "", "")
	require.Zero(t, expect.NoError(server.Command("DBSIZE")).In(t))

	commandOn(t, server, "CONFIG", "SET", "maxmemory", "1")
	refused("OOM", "raise maxmemory")
	commandOn(t, server, "CONFIG", "SET", "maxmemory", "0")
	commandOn(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
	refused("NOREPLICAS", "min-replicas-to-write")
	commandOn(t, server, "CONFIG", "SET", "min-replicas-to-write", "0")

	commandOn(t, server, "CLIENT", "PAUSE", "3600000", "WRITE")
	got = exits(t, statusFailed, "doctor", "-addr", server.Addr(), "-timeout=1s")
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
	got := exits(t, statusFailed, "doctor", "-cluster", "-addr", server.Addr(), patience)
	require.Contains(t, got.out, "no node has slots")
	require.Contains(t, got.out, "--cluster check")
}

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" { // started by a test, to be the command in a process of its own
		main()
	}
	scratch.Use("fencelock-cmd")
	testredis.Together()
	slow = testkit.Patience // doctor warns of no busy machine
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}

// output is what a command has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// ran is a command that has ended.
type ran struct {
	status    int
	out, errs string
}

// fencelock runs the command with these words. Those with a "=" before the sub-command are its environment.
func fencelock(t *testing.T, words ...string) ran {
	t.Helper()
	environment := map[string]string{}
	for len(words) > 0 && strings.Contains(words[0], "=") {
		name, value, _ := strings.Cut(words[0], "=")
		environment[name], words = value, words[1:]
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var out, errs output
	status := run(ctx, words, func(name string) string { return environment[name] }, &out, &errs)
	return ran{status, out.String(), errs.String()}
}

// exits is fencelock with words that have to end with this status.
func exits(t *testing.T, status int, words ...string) ran {
	t.Helper()
	got := fencelock(t, words...)
	require.Equal(t, status, got.status, "%q: %s%s", words, got.out, got.errs)
	return got
}

const patience = "-timeout=20s" // a busy machine is slow

// application is a process that holds locks and is down since: nothing renews what it has left.
func application(t *testing.T, option rueidis.ClientOption, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	return testkit.Dial(t, "", option, append(opts, rwlock.WithTTL(time.Hour))...)
}

// aclLine returns a line of SECURITY.md.
func aclLine(t *testing.T, heading string) []string { return testkit.ACLLine(t, "../..", heading) }

// binary returns the server to test on.
func binary(t *testing.T) string {
	t.Helper()
	testredis.Require(t)
	return testredis.Binaries()[0]
}

func commandOn(t *testing.T, server *testredis.Server, args ...string) {
	t.Helper()
	expect.NoError(server.Command(args...)).In(t, args)
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		words  string
		status int
		says   string
	}{
		{"", statusUsage, "usage: fencelock"},
		{"help", statusOK, "usage: fencelock"},
		{"-h", statusOK, "doctor"},
		{"help break", statusOK, "-reason"},
		{"help break", statusOK, "\n    \tthe user"},
		{"help lst", statusUsage, `no sub-command "lst"`},
		{"lst", statusUsage, `no sub-command "lst"`},
		{"list -h", statusOK, "-older-than"},
		{"version", statusOK, "fencelock "},
		{"REDIS_URL=unix:a list", statusUsage, `REDIS_URL: "unix:a" must be host:port or a URL`},
		{"list -addr :secret@a", statusUsage, "-addr: must be host:port or a URL"},
		{"list -addr redis://a -addr redis://:p@b", statusUsage, "-addr: the addresses differ in more than their servers"},
		{"list -addr redis://a -addr rediss://b", statusUsage, "-addr: the addresses differ"},
		{"list x", statusUsage, `takes no argument "x"`},
		{"list -nothing", statusUsage, "-nothing"},
		{"list -older-than soon", statusUsage, "older-than"},
		{"list -addr ,", statusUsage, "an address is empty"},
		{"list -timeout 0s", statusUsage, "-timeout must be positive"},
		{"list -sentinel m -cluster", statusUsage, "exclude each other"},
		{"list -ca file", statusUsage, "need -tls"},
		{"list -tls -ca does-not-exist", statusFailed, "does-not-exist"},
		{"inspect", statusUsage, "takes one name"},
		{"inspect a b", statusUsage, "takes one name, and 2 are given"},
		{"inspect a -watch", statusUsage, "-watch"},
		{"FENCELOCK_URL=redis://:secret@a?foo=x list", statusUsage, "FENCELOCK_URL: foo is no parameter of a URL; there are"},
		{"FENCELOCK_URL=http://a list", statusUsage, "FENCELOCK_URL: must be host:port or a URL, which begins with redis://"},
		{"REDIS_URL=redis-sentinel://a list", statusUsage, "the name of the master"},
		{"REDIS_URL=redis://a/x list", statusUsage, "number of a database"},
		{"REDIS_URL=redis://a?addr=%x list", statusUsage, "follows the question mark"},
	} {
		got := exits(t, c.status, strings.Fields(c.words)...)
		require.Contains(t, got.out+got.errs, c.says, c.words)
		if c.status == statusOK {
			require.Empty(t, got.errs, c.words)
		}
	}
	require.NotContains(t, exits(t, statusUsage, "REDIS_URL=redis://u:top%secret@a", "list").errs, "secret")
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		words    string
		expected target
	}{
		{"", target{addrs: addresses{"127.0.0.1:6379"}}},
		{"-addr a", target{addrs: addresses{"a:6379"}}},
		{"-addr a,b:1 -addr [::1]:2", target{addrs: addresses{"a:6379", "b:1", "[::1]:2"}}},
		{"-addr ::1", target{addrs: addresses{"[::1]:6379"}}},
		{"-addr a -sentinel m", target{addrs: addresses{"a:26379"}, sentinel: "m"}},
		{"REDIS_URL=redis://a", target{addrs: addresses{"a:6379"}}},
		{"REDIS_URL=redis://:6380", target{addrs: addresses{"127.0.0.1:6380"}}},
		{"REDIS_URL=redis://b FENCELOCK_URL=redis://a", target{addrs: addresses{"a:6379"}}},
		{"REDIS_URL=redis://b -addr a", target{addrs: addresses{"a:6379"}}},
		{"REDIS_URL=a", target{addrs: addresses{"a:6379"}}},
		{"FENCELOCK_URL=a:1,b,c REDIS_URL=redis://d", target{addrs: addresses{"a:1", "b:6379", "c:6379"}}},
		{"REDIS_URL=/run/redis.sock", target{addrs: addresses{"/run/redis.sock"}}},
		{"-addr redis://u:p,q@a/2", target{addrs: addresses{"a:6379"}, user: "u", password: "p,q", db: 2}},
		{"-addr redis://:p@a -addr redis://:p@b,c", target{addrs: addresses{"a:6379", "b:6379", "c:6379"}, password: "p"}},
		{
			"-addr redis://:p@a -addr redis://:q@b -addr c -password r -db 0",
			target{addrs: addresses{"a:6379", "b:6379", "c:6379"}, password: "r"},
		},
		{"-addr redis-sentinel://a,b/m", target{addrs: addresses{"a:26379", "b:26379"}, sentinel: "m"}},
		{"-addr rediss://a?skip_verify", target{addrs: addresses{"a:6379"}, tls: true, skipVerify: true}},
		{"REDIS_URL=redis://u:p%40q@a:1/3?protocol=3", target{addrs: addresses{"a:1"}, user: "u", password: "p@q", db: 3}},
		{"REDIS_URL=redis://:p@a", target{addrs: addresses{"a:6379"}, password: "p"}},
		{"REDIS_URL=redis://u:p@a -user v -db 2", target{addrs: addresses{"a:6379"}, user: "v", password: "p", db: 2}},
		{"REDIS_URL=REDIS://A/2/", target{addrs: addresses{"A:6379"}, db: 2}},
		{"REDIS_URL=rediss://a/", target{addrs: addresses{"a:6379"}, tls: true}},
		{"REDIS_URL=redis-sentinel://a/m/", target{addrs: addresses{"a:26379"}, sentinel: "m"}},
		{"-addr /run/redis.sock", target{addrs: addresses{"/run/redis.sock"}}},
		{
			"REDIS_URL=unix://u:p@/run/redis.sock?db=3",
			target{addrs: addresses{"/run/redis.sock"}, user: "u", password: "p", db: 3},
		},
		{"REDIS_URL=redis://u@a FENCELOCK_PASSWORD=p", target{addrs: addresses{"a:6379"}, user: "u", password: "p"}},
		{"REDIS_URL=rediss://a", target{addrs: addresses{"a:6379"}, tls: true}},
		{"REDIS_URL=valkeys://a?db=2", target{addrs: addresses{"a:6379"}, tls: true, db: 2}},
		{"REDIS_URL=redis://a?addr=b:1&addr=c", target{addrs: addresses{"a:6379", "b:1", "c:6379"}, cluster: true}},
		{"REDIS_URL=redis://a?addr=b:1&master_set=m", target{addrs: addresses{"a:26379", "b:1"}, sentinel: "m"}},
		{"REDIS_URL=redis://a?master_set=m -sentinel n", target{addrs: addresses{"a:26379"}, sentinel: "n"}},
		{"REDIS_URL=redis://a,b:1,c", target{addrs: addresses{"a:6379", "b:1", "c:6379"}}},
		{"REDIS_URL=redis-cluster://a,b", target{addrs: addresses{"a:6379", "b:6379"}, cluster: true}},
		{"REDIS_URL=rediss+cluster://a", target{addrs: addresses{"a:6379"}, cluster: true, tls: true}},
		{
			"REDIS_URL=redis+sentinel://u:p@a,b:1/my%20m/4 FENCELOCK_SENTINEL_PASSWORD=q",
			target{addrs: addresses{"a:26379", "b:1"}, user: "u", password: "p", sentinel: "my m", db: 4, sentinelPass: "q"},
		},
	} {
		var got target
		environment := map[string]string{}
		var args []string
		for _, word := range strings.Fields(c.words) {
			if name, value, found := strings.Cut(word, "="); found {
				environment[name] = value
			} else {
				args = append(args, word)
			}
		}
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		given := got.define(flags)
		require.NoError(t, flags.Parse(args), c.words)
		require.NoError(t, got.complete(given(), func(name string) string { return environment[name] }), c.words)
		got.prefix, got.timeout = "", 0
		require.Equal(t, c.expected, got, c.words)
	}
}
