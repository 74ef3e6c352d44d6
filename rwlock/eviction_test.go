package rwlock_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

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
					w.command("CONFIG", "SET", "maxmemory", c.memory, "maxmemory-policy", c.policy)
					var book logbook
					p := w.process(rwlock.WithLogger(slog.New(&book)))
					lost := func(name string) *rwlock.Lease {
						lease := p.lock(name, rwlock.Write)
						w.command("DEL", "fencelock:{"+name+"}")
						require.ErrorIs(w.t, lease.Renew(w.ctx), rwlock.ErrLost)
						return lease
					}
					first := lost("a")
					w.eventually("the server is asked", func() bool { return p.link.Calls("INFO") == 1 })
					if !c.blamed {
						w.settle()
						require.NoError(w.t, p.Close()) // the answer has been read
						require.Empty(w.t, book.lines("evicts"))
						require.NotContains(w.t, first.Err().Error(), c.policy)
						return
					}
					w.eventually("the log names the policy", func() bool { return len(book.lines("evicts keys")) == 1 })
					for _, lease := range []*rwlock.Lease{first, lost("b")} {
						err := lease.Err()
						require.ErrorContains(w.t, err, "gone from Redis: ")
						require.ErrorContains(w.t, err, "maxmemory-policy is "+c.policy)
						var node *rwlock.NodeError
						require.ErrorAs(w.t, err, &node)
						require.NotEmpty(w.t, node.Addr)
					}
					released := p.lock("c", rwlock.Write)
					w.command("DEL", "fencelock:{c}")
					require.ErrorContains(w.t, released.Release(w.ctx), c.policy)
					require.NoError(w.t, p.Close())
					require.Len(w.t, book.lines("evicts keys"), 1)
					require.Equal(w.t, 1, p.link.Calls("INFO"))
				})
			})
		}
	}
}
