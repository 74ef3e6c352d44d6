package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lease that is gone from a server that evicts keys is probably evicted. The server is asked once; the log and the
// text of the error name its policy. One that does not evict is not blamed.
func TestALossByEvictionNamesThePolicy(t *testing.T) {
	t.Parallel()
	for _, binary := range testredis.Binaries() {
		server := testredis.StartBinary(t, binary)
		for name, c := range map[string]struct {
			memory, policy string
			blamed         bool
		}{
			"evicts what expires":   {"1gb", "volatile-lru", true},
			"evicts anything":       {"1gb", "allkeys-random", true},
			"does not evict":        {"1gb", "noeviction", false},
			"has no limit to reach": {"0", "volatile-lru", false},
		} {
			t.Run(name, func(t *testing.T) {
				onServer(t, server, func(w *world) {
					w.Command("CONFIG", "SET", "maxmemory", c.memory, "maxmemory-policy", c.policy)
					var book testkit.Log
					p := w.Process(book.Option())
					lost := func(name string) *rwlock.Lease {
						lease := p.Take(name, rwlock.Write)
						w.Command("DEL", "fencelock:{"+name+"}")
						require.ErrorIs(w, lease.Renew(w.Ctx), rwlock.ErrLost)
						return lease
					}
					first := lost("a")
					w.Eventually("the server is asked", func() bool { return p.Link.Calls("INFO") == 1 })
					if !c.blamed {
						w.Settle()
						require.NoError(w, p.Close()) // the answer has been read
						require.Empty(w, book.Records("evicts"))
						require.NotContains(w, first.Err().Error(), c.policy)
						return
					}
					w.Eventually("the log names the policy", func() bool { return len(book.Records("evicts keys")) == 1 })
					for _, lease := range []*rwlock.Lease{first, lost("b")} {
						err := lease.Err()
						require.ErrorContains(w, err, "gone from Redis: ")
						require.ErrorContains(w, err, "maxmemory-policy is "+c.policy)
						var node *rwlock.NodeError
						require.ErrorAs(w, err, &node)
						require.NotEmpty(w, node.Addr)
					}
					released := p.Take("c", rwlock.Write)
					w.Command("DEL", "fencelock:{c}")
					require.ErrorContains(w, released.Release(w.Ctx), c.policy)
					require.NoError(w, p.Close())
					require.Len(w, book.Records("evicts keys"), 1)
					require.Equal(w, 1, p.Link.Calls("INFO"))
				})
			})
		}
	}
}
