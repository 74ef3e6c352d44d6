package rwlock_test

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
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

// A server that evicts keys is named in the log at its first use, once, before it costs a lock. It is asked once. The
// text of a later loss names it too; a server that does not evict is not blamed.
func TestAnEvictingServerIsToldAtFirstUse(t *testing.T) {
	t.Parallel()
	for _, binary := range testredis.Binaries() {
		server := testredis.StartBinary(t, binary)
		for name, c := range map[string]struct {
			memory, policy string
			log            string // "" for nothing
			blamed         bool   // for a loss
		}{
			"what expires soon":     {"1gb", "volatile-ttl", mayEvict, true},
			"anything":              {"1gb", "allkeys-lru", mayEvict, true},
			"nothing":               {"1gb", "noeviction", "", false},
			"has no limit to reach": {"0", "volatile-lru", wouldEvict, false},
			"neither":               {"0", "noeviction", "", false},
		} {
			t.Run(name, func(t *testing.T) {
				onServer(t, server, func(w *world) {
					evicts(t, server, c.memory, c.policy)
					var book testkit.Log
					p := w.Process(book.Option())
					asked := func(n int) {
						w.Eventually("the server is asked", func() bool { return p.Link.Calls("INFO") == n })
						w.Settle()
					}
					var told []string
					if c.log != "" {
						told = []string{"WARN " + p.Proxies[0].Addr() + " " + c.policy}
					}
					for range 3 {
						p.Section("n")
						asked(1)
					}
					w.Eventually("the log names the policy", func() bool { return len(book.Records("evict")) == len(told) })

					lost := p.Take("a", rwlock.Write)
					w.Command("DEL", "fencelock:{a}")
					require.ErrorIs(w, lost.Renew(w.Ctx), rwlock.ErrLost)
					asked(2)
					released := p.Take("b", rwlock.Write)
					w.Command("DEL", "fencelock:{b}")
					for _, err := range []error{lost.Err(), released.Release(w.Ctx)} {
						if !c.blamed {
							require.NotContains(w, err.Error(), c.policy)
							continue
						}
						require.ErrorContains(w, err, "gone: ")
						require.ErrorContains(w, err, "maxmemory-policy is "+c.policy)
						var node *rwlock.NodeError
						require.ErrorAs(w, err, &node)
						require.Equal(w, p.Proxies[0].Addr(), node.Addr)
					}
					require.NoError(w, p.Close()) // the answers have been read
					require.Equal(w, told, evicting(&book, cmp.Or(c.log, "evict")), book.String())
					require.Equal(w, 2, p.Link.Calls("INFO"), "asked again by the second loss of a minute")
				})
			})
		}
	}
}

// The policy may change while the server is used. Then the next loss asks again.
func TestAServerThatBeginsToEvictIsToldAtALoss(t *testing.T) {
	server := testredis.Start(t)
	onServer(t, server, func(w *world) {
		evicts(t, server, "1gb", "noeviction")
		var book testkit.Log
		p := w.Process(book.Option())
		lease := p.Take("n", rwlock.Write)
		w.Eventually("the server is asked", func() bool { return p.Link.Calls("INFO") == 1 })
		w.Settle()
		evicts(t, server, "1gb", "allkeys-random")
		w.Command("DEL", "fencelock:{n}")
		require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrLost)
		w.Eventually("the log names the policy", func() bool { return len(book.Records(mayEvict)) == 1 })
		require.ErrorContains(w, lease.Err(), "maxmemory-policy is allkeys-random")
	})
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
	locker := testkit.Dial(t, "", s.Option(), book.Option(), testredis.Patience())
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
