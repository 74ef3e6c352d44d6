package fencing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestResetAfterATokenFromTheFuture(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("a", fencing.MaxToken)))
	require.NoError(t, w.Claim(read("a", fencing.MaxToken)))
	require.NoError(t, w.Claim(write("b", 99)))
	require.ErrorIs(t, w.Claim(write("a", 20)), fencing.ErrStale, "every holder is refused")

	require.NoError(t, w.Reset(t.Context(), write("a", 20)))
	requireSeen(t, &w, "a", 20, 20)
	require.ErrorIs(t, w.Claim(read("a", 19)), fencing.ErrStale, "what is older than the repair stays out")
	require.ErrorIs(t, w.Claim(write("a", 19)), fencing.ErrStale)
	require.NoError(t, w.Claim(write("a", 21)))
	requireSeen(t, &w, "b", 0, 99)
}

func TestResetRefusesWhatIsNoWritersFence(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("a", 10)))
	require.ErrorIs(t, w.Reset(t.Context(), read("a", 9)), fencing.ErrMalformed)
	require.ErrorIs(t, w.Reset(t.Context(), fencing.Fence{Resource: "a", Token: 9}), fencing.ErrMalformed)
	require.ErrorIs(t, w.Reset(t.Context(), write("a", 0)), fencing.ErrMissing)
	require.ErrorIs(t, w.Reset(t.Context(), write("a", fencing.MaxToken+1)), fencing.ErrMalformed)
	requireSeen(t, &w, "a", 0, 10)
}

// The command of docs/fencing.md, "A token from the far future".
func TestResetOfARegisterInRedis(t *testing.T) {
	server := testredis.NewMini(t)
	client := server.Client(t)
	guard, err := redisguard.New(client)
	require.NoError(t, err)
	const key = "order:{42}:state"
	require.NoError(t, guard.Claim(t.Context(), write("orders/42", fencing.MaxToken), key))
	require.NoError(t, guard.Claim(t.Context(), read("orders/42", fencing.MaxToken), key))

	const repair = fencing.Token(1763712345678901)
	command := strings.Fields("HSET fencing:{42}:orders/42 r 1763712345678901 w 1763712345678901")
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error())
	seen, err := guard.Seen(t.Context(), "orders/42", key)
	require.NoError(t, err)
	require.Equal(t, fencing.Registers{MaxRead: repair, MaxWrite: repair}, seen)
	require.ErrorIs(t, guard.Claim(t.Context(), write("orders/42", repair-1), key), fencing.ErrStale)
	require.NoError(t, guard.Claim(t.Context(), write("orders/42", repair+1), key))
}
