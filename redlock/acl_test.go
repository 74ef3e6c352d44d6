package redlock_test

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// aclLine is the user of SECURITY.md for each master of a quorum.
func aclLine(t *testing.T) string {
	page, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	_, line, found := strings.Cut(string(page), "Each master of a quorum")
	require.True(t, found)
	line = line[strings.Index(line, "ACL SETUSER"):]
	line, _, _ = strings.Cut(line, "\n")
	return line
}

// handOver renews a lock that it holds in the first process, while the second waits for it.
func handOver(w *world, first, second *process) {
	held := first.Take("orders", rwlock.Write)
	require.NoError(w, held.Renew(w.Ctx))
	waiting := second.InTurn(w.Ctx, "orders", rwlock.Read)
	w.UntilWaiting("orders", 1)
	w.Release(held)
	waiting.Granted()
}

// The user of SECURITY.md for a master of a quorum may do all that a lock needs: no command, key or channel is refused,
// neither of clients that are tuned for locks nor of others.
func TestACLOfAQuorumSuffices(t *testing.T) {
	line := aclLine(t)
	w := testkit.Start(t, 3)
	for _, server := range w.Servers {
		w.On(server, strings.Fields(line)...)
	}
	w.Net.Change = func(o *rueidis.ClientOption) { o.Username, o.Password = "locks", "secret" }
	own := w.Process()
	w.Net.Tuned = true
	tuned := w.Process()
	for _, pair := range [][2]*process{{tuned, own}, {own, tuned}} {
		handOver(w, pair[0], pair[1])
	}
	for _, server := range w.Servers {
		require.Empty(w, w.On(server, "ACL", "LOG"))
	}
}
