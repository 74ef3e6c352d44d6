package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A reader beside readers of its process.
func BenchmarkRWMutexJoin(b *testing.B) {
	locker, err := rwlock.New(testredis.Start(b).Client(b))
	require.NoError(b, err)
	defer locker.Close()
	mu := locker.RWMutex("n")
	require.NoError(b, mu.RLock(b.Context()))
	b.ReportAllocs()
	for b.Loop() {
		if mu.RLock(b.Context()) != nil || mu.RUnlock(b.Context()) != nil {
			b.Fatal("not read")
		}
	}
	require.NoError(b, mu.RUnlock(b.Context()))
}
