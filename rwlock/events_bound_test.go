package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestReleasedAloneIsBounded(t *testing.T) {
	mini := testredis.NewMini(t)
	block := make(chan struct{})
	n := 0
	l, err := rwlock.New(mini.Client(t), rwlock.WithTTL(time.Minute), rwlock.WithTrace(&rwlock.Trace{
		Released: func(rwlock.TraceEvent) { <-block; n++ },
	}))
	require.NoError(t, err)
	for range 6000 {
		lease, err := l.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	close(block)
	require.NoError(t, l.Close())
	require.LessOrEqual(t, n, 4097)
}
