package redisguard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/testredis"
)

// A full server holds back what needs memory, and nothing else: the next holder still reads, claims and deletes, or
// nobody could ever make room.
func TestFullServer(t *testing.T) {
	for _, opts := range [][]redisguard.Option{nil, {redisguard.WithRegisterTTL(time.Hour)}} {
		t.Run(fmt.Sprintf("ttl=%t", opts != nil), func(t *testing.T) {
			server := testredis.Start(t)
			g, ctx := newGuard(t, server.Client(t), opts...), context.Background()
			large := strings.Repeat("x", 1<<20)
			for _, key := range []string{"read", "claimed", "deleted", "unlinked", "kept"} {
				require.NoError(t, g.Set(ctx, write("a", 10), key, large, 0))
			}
			command(t, server, "CONFIG", "SET", "maxmemory", "1mb")

			for _, token := range []fencing.Token{10, 11} { // the same holder, and the next
				full := "OOM"
				require.ErrorContains(t, g.Set(ctx, write("a", token), "kept", "y", 0), full)
				require.ErrorContains(t, g.HSet(ctx, write("a", token), "hash", map[string]string{"f": "v"}), full)
				require.ErrorContains(t, g.Derive(ctx, read("a", token), "derived", "y", 0), full)
				set := redisguard.NewScript(`return redis.call('SET', KEYS[1], 'y')`)
				require.ErrorContains(t, second(g.Do(ctx, write("a", token), set, []string{"script"}, nil)), full)
			}
			value, err := g.Get(ctx, write("a", 11), "kept")
			require.NoError(t, err)
			require.Equal(t, large, value, "nothing was stored")
			require.EqualValues(t, 0, command(t, server, "EXISTS", "hash", "derived", "script"))

			value, err = g.Get(ctx, read("a", 11), "read")
			require.NoError(t, err)
			require.Equal(t, large, value)
			require.NoError(t, g.Claim(ctx, write("a", 11), "claimed"))
			unlink := redisguard.NewScript(`return redis.call('UNLINK', KEYS[1])`)
			require.NoError(t, second(g.Do(ctx, write("a", 11), unlink, []string{"unlinked"}, nil)))
			require.NoError(t, g.Del(ctx, write("a", 11), "deleted"))
			require.EqualValues(t, 0, command(t, server, "EXISTS", "unlinked", "deleted"))
			for _, key := range []string{"read", "claimed", "deleted", "unlinked"} {
				require.ErrorIs(t, g.Claim(ctx, write("a", 10), key), fencing.ErrStale, key)
			}
		})
	}
}
