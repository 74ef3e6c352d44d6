package redisguard_test

import (
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/testredis"
)

// A Guard that was not made by New says so.
func TestTheZeroGuardIsRefused(t *testing.T) {
	guard, ctx, f := new(redisguard.Guard), t.Context(), write("orders/42", 7)
	script := redisguard.NewScript(`return 1`)
	_, done := guard.Do(ctx, f, script, []string{"k"}, nil)
	_, got := guard.Get(ctx, f, "k")
	_, seen := guard.Seen(ctx, "orders/42", "k")
	for name, err := range map[string]error{
		"Do": done, "Get": got, "Seen": seen,
		"Claim":  guard.Claim(ctx, f, "k"),
		"Set":    guard.Set(ctx, f, "k", "v", 0),
		"HSet":   guard.HSet(ctx, f, "k", map[string]string{"a": "1"}),
		"Del":    guard.Del(ctx, f, "k"),
		"Derive": guard.Derive(ctx, f, "k", "v", 0),
	} {
		require.ErrorContains(t, err, "make it with New", name)
	}
}

// A script and an option that are nil are refused before anything is sent.
func TestNilArgumentsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		guard, err := redisguard.New(client)
		require.NoError(t, err)
		mini.ResetCalls()
		for _, script := range []*redisguard.Script{nil, {}} {
			_, err = guard.Do(t.Context(), write("orders/42", 7), script, []string{"k"}, nil)
			require.ErrorContains(t, err, "make it with NewScript")
		}
		require.Empty(t, mini.AllCalls())
		for _, c := range []rueidis.Client{nil, client} {
			_, err = redisguard.New(c, nil)
			require.ErrorContains(t, err, "is nil")
		}
	})
}
