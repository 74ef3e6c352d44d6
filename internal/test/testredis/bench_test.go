//go:build unix

package testredis_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func BenchmarkMini(b *testing.B)   { benchmark(b, testredis.NewMini(b).Client(b)) }
func BenchmarkServer(b *testing.B) { benchmark(b, testredis.Start(b).Client(b)) }
func BenchmarkProxy(b *testing.B) {
	benchmark(b, testredis.NewProxy(b, testredis.Start(b).Addr()).Client(b))
}

func benchmark(b *testing.B, client rueidis.Client) {
	for b.Loop() {
		if err := client.Do(b.Context(), set(client, "k", "v")).Error(); err != nil {
			b.Fatal(err)
		}
	}
}
