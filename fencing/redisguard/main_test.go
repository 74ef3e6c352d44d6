package redisguard_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/scratch"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-redisguard")
	goleak.VerifyTestMain(m)
}

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}

func newGuard(t testing.TB, client rueidis.Client, opts ...redisguard.Option) *redisguard.Guard {
	t.Helper()
	g, err := redisguard.New(client, opts...)
	require.NoError(t, err)
	return g
}
