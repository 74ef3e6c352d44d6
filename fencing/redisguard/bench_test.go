package redisguard_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// What the guard costs: the same write with and without, with a token that stays as a holder's does and one that rises
// with each write. The metric server-us/op is the server's own count of the command.
func BenchmarkSet(b *testing.B) {
	server := testredis.Start(b)
	client, ctx := server.Client(b), context.Background()
	g := newGuard(b, client)
	value := strings.Repeat("x", 100)
	for _, kind := range []struct {
		name, command string
		set           func(i int) error
	}{
		{"unguarded", "set", func(int) error {
			return client.Do(ctx, client.B().Set().Key("k").Value(value).Build()).Error()
		}},
		{"guarded/same", "evalsha", func(int) error { return g.Set(ctx, write("a", fencing.MaxToken), "k", value, 0) }},
		{"guarded/rising", "evalsha", func(i int) error {
			return g.Set(ctx, write("b", fencing.Token(i+1)), "k2", value, 0)
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			server.ResetStats()
			for i := 0; b.Loop(); i++ {
				require.NoError(b, kind.set(i))
			}
			stat := server.Stats()[kind.command]
			b.ReportMetric(float64(stat.Usec)/float64(max(stat.Calls, 1)), "server-us/op")
		})
	}
}
