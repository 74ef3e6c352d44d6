package rwlock_test

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// evicting returns the addresses of the servers of which the log says that they evict locks, with their policies.
func evicting(book *testkit.Log, about string) (found []string) {
	for _, r := range book.Records(about) {
		one := r.Level.String()
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "master" || a.Key == "policy" {
				one += " " + a.Value.String()
			}
			return true
		})
		found = append(found, one)
	}
	slices.Sort(found)
	return found
}

const (
	mayEvict   = "server may evict locks; set its maxmemory-policy to noeviction"
	wouldEvict = "server would evict locks if its memory were limited; set its maxmemory-policy to noeviction"
)

// evicts sets when a server evicts keys.
func evicts(t *testing.T, server *testredis.Server, memory, policy string) {
	commandOn(t, server, "CONFIG", "SET", "maxmemory", memory, "maxmemory-policy", policy)
}

// A server that evicts keys is named in the log at its first use, once, before it costs a lock. It is asked once.
func TestAnEvictingServerIsToldAtFirstUse(t *testing.T) {
	t.Parallel()
	for _, binary := range testredis.Binaries() {
		server := testredis.StartBinary(t, binary)
		for name, c := range map[string]struct {
			memory, policy string
			log            string // "" for nothing
		}{
			"what expires soon":     {"1gb", "volatile-ttl", mayEvict},
			"anything":              {"1gb", "allkeys-lru", mayEvict},
			"nothing":               {"1gb", "noeviction", ""},
			"has no limit to reach": {"0", "volatile-lru", wouldEvict},
			"neither":               {"0", "noeviction", ""},
		} {
			t.Run(name, func(t *testing.T) {
				onServer(t, server, func(w *world) {
					evicts(t, server, c.memory, c.policy)
					var book testkit.Log
					p := w.Process(book.Option())
					var told []string
					if c.log != "" {
						told = []string{"WARN " + p.Proxies[0].Addr() + " " + c.policy}
					}
					for range 3 {
						p.Section("n")
						w.Eventually("the server is asked", func() bool { return p.Link.Calls("INFO") == 1 })
						w.Settle()
					}
					w.Eventually("the log names the policy", func() bool { return len(book.Records("evict")) == len(told) })
					require.NoError(w, p.Close()) // the answers have been read
					require.Equal(w, told, evicting(&book, cmp.Or(c.log, "evict")), book.String())
					require.Equal(w, 1, p.Link.Calls("INFO"))
				})
			})
		}
	}
}

// A user who may not ask learns nothing, and locks as before.
func TestAServerThatRefusesINFOIsNotTold(t *testing.T) {
	server := testredis.Start(t)
	evicts(t, server, "1gb", "allkeys-lru")
	commandOn(t, server, append(aclLine(t, aclOne), "-info")...)
	var book testkit.Log
	locker := testkit.Dial(t, server.Addr(), rueidis.ClientOption{Username: "locks", Password: "secret"}, book.Option())
	useAll(t, locker, locker)
	require.Eventually(t, func() bool { return slices.Contains(aclRefusals(t, server), "info") },
		testkit.Patience, time.Millisecond, "the server is asked")
	require.NoError(t, locker.Close())
	require.Equal(t, []string{"info"}, aclRefusals(t, server), "asked once")
	require.Empty(t, book.Records(""), book.String())
}

// aclRefusals returns what the server has refused to its users.
func aclRefusals(t *testing.T, server *testredis.Server) (objects []string) {
	for _, entry := range commandOn(t, server, "ACL", "LOG").([]any) {
		pairs := entry.([]any)
		at := slices.IndexFunc(pairs, func(key any) bool { return key == "object" })
		objects = append(objects, pairs[at+1].(string))
		count := slices.IndexFunc(pairs, func(key any) bool { return key == "count" })
		require.EqualValues(t, 1, pairs[count+1])
	}
	return objects
}

// Each master of a quorum is named that evicts, also one that has come later.
func TestEachMasterThatEvictsIsTold(t *testing.T) {
	w := testkit.Start(t, 3)
	evicts(t, w.Servers[0], "1gb", "allkeys-lru")
	evicts(t, w.Servers[1], "1gb", "noeviction")
	evicts(t, w.Servers[2], "1gb", "volatile-ttl")
	var book testkit.Log
	p := w.Process(book.Option())
	expected := []string{"WARN " + p.Proxies[0].Addr() + " allkeys-lru", "WARN " + p.Proxies[2].Addr() + " volatile-ttl"}
	slices.Sort(expected)
	p.Section("n")
	w.Eventually("the log names both", func() bool { return len(book.Records(mayEvict)) == 2 })
	p.Section("m")
	require.NoError(t, p.Close())
	require.Equal(t, expected, evicting(&book, "evict"))
}

func TestTheNextMasterOfASentinelGroupThatEvictsIsTold(t *testing.T) {
	t.Parallel()
	s := testredis.StartSentinel(t, redisBinary(t))
	for _, node := range s.Nodes() {
		evicts(t, node, "1gb", "volatile-lfu")
	}
	var book testkit.Log
	locker := testkit.Dial(t, "", s.Option(), book.Option())
	for i := range 2 {
		require.Eventually(t, func() bool {
			_ = locker.Do(t.Context(), "orders", func(context.Context) error { return nil }) // a failover may refuse it
			return len(book.Records(mayEvict)) == i+1
		}, testkit.Patience, 10*time.Millisecond, &book)
		require.Contains(t, evicting(&book, mayEvict), "WARN "+s.Masters()[0].Addr()+" volatile-lfu")
		if i == 0 {
			s.Failover()
		}
	}
}

// pinged waits for the answer of Ping that a server gives once a change of it is through.
func pinged(t *testing.T, l *rwlock.Locker, addr string, says ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := l.Ping(t.Context())
		for _, part := range append(says, addr) {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Log(err)
				return false
			}
		}
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		return true
	}, testkit.Patience, 10*time.Millisecond, "%q", says)
}

// Each trouble of a server is named, with its cure, and is over when the server is well again. Ping writes nothing.
func TestPing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	set := func(args ...string) { commandOn(t, server, append([]string{"CONFIG", "SET"}, args...)...) }
	l := testkit.Dial(t, server.Addr(), rueidis.ClientOption{})
	well := func() { t.Helper(); require.NoError(t, l.Ping(t.Context())) }
	well()
	require.EqualValues(t, 0, commandOn(t, server, "DBSIZE"))
	for _, c := range []struct{ option, bad, good, trouble, cure string }{
		{"maxmemory", "1kb", "0", "OOM", "raise maxmemory"},
		{"min-replicas-to-write", "1", "0", "NOREPLICAS", "min-replicas-to-write"},
	} {
		set(c.option, c.bad)
		pinged(t, l, server.Addr(), c.trouble, c.cure)
		set(c.option, c.good)
		well()
	}
	set("maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	pinged(t, l, server.Addr(), "maxmemory-policy is allkeys-lru", "noeviction")
	set("maxmemory", "0")
	well()

	for user, rules := range map[string]string{
		"noscripts": "on >secret ~* &* +@all -@scripting", "nokeys": "on >secret ~other:* &* +@all",
	} {
		commandOn(t, server, append([]string{"ACL", "SETUSER", user}, strings.Fields(rules)...)...)
		as := testkit.Dial(t, server.Addr(), rueidis.ClientOption{Username: user, Password: "secret"})
		pinged(t, as, server.Addr(), "NOPERM", "SECURITY.md")
	}
	wrong := testkit.Dial(t, server.Addr(), rueidis.ClientOption{Username: "nokeys", Password: "guess"})
	pinged(t, wrong, server.Addr(), "WRONGPASS", "user and password")

	replica := testredis.Start(t)
	replica.ReplicaOf(server)
	pinged(t, testkit.Dial(t, replica.Addr(), rueidis.ClientOption{}), replica.Addr(), "READONLY", "locks need its master")

	server.Freeze()
	pinged(t, l, server.Addr(), "no reply", "CLIENT UNPAUSE")
	server.Thaw()
	server.Kill()
	pinged(t, l, server.Addr(), "connection refused", "is it running")
	require.ErrorIs(t, l.Ping(ended(t.Context())), context.Canceled)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Ping(t.Context()), rwlock.ErrClosed)
}

// A server that still reads its data takes no writes.
func TestPingWhileAServerLoads(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--rdbcompression", "no", "--enable-debug-command", "yes")
	commandOn(t, server, "DEBUG", "POPULATE", "5000", "key", "4096")
	commandOn(t, server, "SAVE")
	slow := testredis.Start(t, "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "10000",
		"--dir", folderOf(t, server))
	pinged(t, testkit.Dial(t, slow.Addr(), rueidis.ClientOption{}), slow.Addr(), "LOADING", "wait: ")
}

// Sentinel: the master is asked. Cluster: each server with slots is.
func TestPingOfAGroup(t *testing.T) {
	t.Parallel()
	binary := redisBinary(t)
	for name, group := range map[string]testredis.Deployment{
		"Sentinel": testredis.StartSentinel(t, binary), "Cluster": testredis.StartCluster(t, binary, 0),
	} {
		require.NoError(t, testkit.Dial(t, "", group.Option()).Ping(t.Context()), name)
	}
	cluster := testredis.StartCluster(t, binary, 0)
	l := testkit.Dial(t, "", cluster.Option())
	for _, node := range cluster.Nodes() {
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "1kb")
		pinged(t, l, node.Addr(), "OOM")
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "0")
		require.NoError(t, l.Ping(t.Context()))
	}
}

// Over a quorum the error is ErrNoQuorum only if too few masters are left.
func TestPingOverAQuorum(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	var addrs []string
	for _, s := range w.Servers {
		addrs = append(addrs, s.Addr())
	}
	require.NoError(t, redlock.Found(w.Soon(time.Minute), addrs))
	l := expect.NoError(redlock.Open(addrs, testredis.Silent(), testredis.Patience())).In(t)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, l.Ping(t.Context()))
	w.Servers[2].Kill()
	err := l.Ping(t.Context())
	require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
	require.Equal(t, 2, testkit.As[*rwlock.NodeError](t, err).Index)
	require.ErrorContains(t, err, addrs[2])
	w.Servers[0].Kill()
	expect.Fails(t, l.Ping(t.Context()), rwlock.ErrNoQuorum, addrs[0], addrs[2])
}

func folderOf(t *testing.T, server *testredis.Server) string {
	t.Helper()
	return commandOn(t, server, "CONFIG", "GET", "dir").([]any)[1].(string)
}

// hooked is a client as those of rueidishook are: it sees each command.
type hooked struct {
	rueidis.Client
	seen *testkit.Notes[string]
}

func (h *hooked) Do(ctx context.Context, c rueidis.Completed) rueidis.RedisResult {
	h.seen.Add(c.Commands()[0])
	return h.Client.Do(ctx, c)
}

func (h *hooked) DoMulti(ctx context.Context, c ...rueidis.Completed) []rueidis.RedisResult {
	for _, one := range c {
		h.seen.Add(one.Commands()[0])
	}
	return h.Client.DoMulti(ctx, c...)
}

func (h *hooked) Nodes() map[string]rueidis.Client {
	nodes := h.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = &hooked{node, h.seen}
	}
	return nodes
}

// Over a quorum a client that does not know its connections pays an INFO for each script. A wrapped one does not.
func TestWrapKeepsWhatIsKnownOfTheConnection(t *testing.T) {
	servers := []*testredis.Server{testredis.Start(t), testredis.Start(t), testredis.Start(t)}
	scripts, infos := map[string]int{}, map[string]int{}
	isNoScript := func(name string) bool { return !strings.HasPrefix(name, "EVAL") }
	for name, wrap := range map[string]func(rueidis.Client, func(rueidis.Client) rueidis.Client) (rueidis.Client, error){
		"wrapped": rwlock.Wrap,
		"hidden": func(c rueidis.Client, with func(rueidis.Client) rueidis.Client) (rueidis.Client, error) {
			return with(c), nil
		},
	} {
		seen := new(testkit.Notes[string])
		var addrs []string
		for _, server := range servers {
			addrs = append(addrs, server.Addr())
		}
		clients := expect.NoError(redlock.Dial(addrs, rueidis.ClientOption{})).In(t)
		testkit.FoundLongAgo(t, clients)
		for i, client := range clients {
			hook := func(c rueidis.Client) rueidis.Client { return &hooked{c, seen} }
			clients[i] = expect.NoError(wrap(client, hook)).In(t)
		}
		locker := expect.NoError(redlock.New(clients, testredis.Silent(), testredis.Patience())).In(t)
		pair := func() { require.NoError(t, locker.Do(t.Context(), "n", func(context.Context) error { return nil })) }
		pair()
		for _, server := range servers {
			server.ResetStats()
		}
		for range 10 {
			pair()
		}
		scripts[name] = len(slices.DeleteFunc(seen.All(), isNoScript))
		for _, server := range servers {
			infos[name] += server.Stats()["info"].Calls
		}
		require.NoError(t, locker.Close())
		for _, client := range clients {
			client.Close()
		}
	}
	require.Greater(t, scripts["wrapped"], 30, "the hooks see the scripts")
	require.Less(t, infos["wrapped"], 10)
	require.GreaterOrEqual(t, infos["hidden"], 20, "two masters of three are a quorum; the third may not be asked in time")
}

func TestWrapRefuses(t *testing.T) {
	client := expect.NoError(rwlock.Dial(miniredis.RunT(t).Addr(), rueidis.ClientOption{})).In(t)
	defer client.Close()
	same := func(c rueidis.Client) rueidis.Client { return c }
	for name, f := range map[string]func() (rueidis.Client, error){
		"no client":     func() (rueidis.Client, error) { return rwlock.Wrap(nil, same) },
		"not from Dial": func() (rueidis.Client, error) { return rwlock.Wrap(&hooked{Client: client}, same) },
		"no function":   func() (rueidis.Client, error) { return rwlock.Wrap(client, nil) },
		"a function of none": func() (rueidis.Client, error) {
			return rwlock.Wrap(client, func(rueidis.Client) rueidis.Client { return nil })
		},
	} {
		require.ErrorIs(t, expect.ErrorOf(f()), rwlock.ErrOption, name)
	}
	require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error(), "it stays as it was")

	// Wrapped twice, and closed by either end.
	twice := expect.NoError(rwlock.Wrap(expect.NoError(rwlock.Wrap(client, same)).In(t), same)).In(t)
	locker := expect.NoError(rwlock.New(twice, testredis.Silent())).In(t)
	require.NoError(t, expect.ErrorOf(locker.Lock(t.Context(), "n")))
	client.Close()
	err := expect.ErrorOf(locker.Lock(t.Context(), "m"))
	require.ErrorIs(t, err, rwlock.ErrNoQuorum, "a closed client ends the waiting")
	require.NoError(t, locker.Close())
	twice.Close()
}
