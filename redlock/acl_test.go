package redlock_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
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

// handOver renews a lock that it holds over the first locker, while the second waits for it.
func handOver(t *testing.T, first, second *rwlock.Locker) {
	ctx := t.Context()
	held, err := first.Lock(ctx, "orders")
	require.NoError(t, err)
	require.NoError(t, held.Renew(ctx))
	waiting := make(chan error, 1)
	go func() {
		read, err := second.RLock(ctx, "orders")
		if err == nil {
			err = read.Release(ctx)
		}
		waiting <- err
	}()
	require.Eventually(t, func() bool {
		state, err := first.Inspect(ctx, "orders")
		return err == nil && len(state.Waiters) == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, held.Release(ctx))
	require.NoError(t, <-waiting)
}

// The user of SECURITY.md for a master of a quorum may do all that a lock needs: no command, key or channel is refused,
// neither of clients that are tuned for locks nor of others.
func TestACLOfAQuorumSuffices(t *testing.T) {
	line := aclLine(t)
	s := newRealSet(t, 3)
	addrs := []string{}
	for _, server := range s.servers {
		_, err := server.Command(strings.Fields(line)...)
		require.NoError(t, err)
		addrs = append(addrs, server.Addr())
	}
	user := func(o *rueidis.ClientOption) { o.Username, o.Password = "locks", "secret" }
	option := rueidis.ClientOption{}
	user(&option)
	clients, err := redlock.Dial(addrs, option)
	require.NoError(t, err)
	for _, c := range clients {
		defer c.Close()
	}
	tuned, err := redlock.New(clients, testredis.Patience())
	require.NoError(t, err)
	defer tuned.Close()
	plain := s.peer(user)

	for _, pair := range [][2]*rwlock.Locker{{tuned, plain.Locker}, {plain.Locker, tuned}} {
		handOver(t, pair[0], pair[1])
	}
	for _, server := range s.servers {
		refused, err := server.Command("ACL", "LOG")
		require.NoError(t, err)
		require.Empty(t, refused)
	}
}
