package redisguard_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// What the guard costs: the same write with and without, one at a time (the round
// trip) and from many goroutines over one connection (the server's time), with a
// token that stays as a holder's does and one that rises with each write. The
// metric server-us/op is the server's own count of the command.
func BenchmarkSet(b *testing.B) {
	server := testredis.Start(b)
	client, ctx := server.Client(b), context.Background()
	g, err := redisguard.New(client)
	if err != nil {
		b.Fatal(err)
	}
	value := strings.Repeat("x", 100)
	kinds := []struct {
		name, command string
		set           func(i int) error
	}{
		{"unguarded", "set", func(int) error {
			return client.Do(ctx, client.B().Set().Key("k").Value(value).Build()).Error()
		}},
		{"guarded/same", "evalsha", func(int) error {
			return g.Set(ctx, write("a", fencing.MaxToken), "k", value, 0)
		}},
		{"guarded/rising", "evalsha", func(i int) error {
			return g.Set(ctx, write("b", fencing.Token(i+1)), "k2", value, 0)
		}},
	}
	for _, kind := range kinds {
		b.Run("alone/"+kind.name, func(b *testing.B) {
			b.ReportAllocs()
			if err := client.Do(ctx, client.B().Flushdb().Build()).Error(); err != nil {
				b.Fatal(err)
			}
			server.ResetStats()
			i := 0
			for b.Loop() {
				if err := kind.set(i); err != nil {
					b.Fatal(err)
				}
				i++
			}
			reportServer(b, server, kind.command)
		})
	}
	for _, kind := range kinds[:2] {
		b.Run("parallel/"+kind.name, func(b *testing.B) {
			server.ResetStats()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := kind.set(0); err != nil {
						b.Error(err)
						return
					}
				}
			})
			reportServer(b, server, kind.command)
		})
	}
}

func reportServer(b *testing.B, server *testredis.Server, command string) {
	stat := server.Stats()[command]
	b.ReportMetric(float64(stat.Usec)/float64(max(stat.Calls, 1)), "server-us/op")
}
