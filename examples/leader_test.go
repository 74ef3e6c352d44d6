package examples_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// The first leader is asked to end, the second is killed, and the third leads then. The tokens go up.
func TestLeader(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	candidates := start(t, 3, "leader", "-redis", server.Addr(), "-ttl", "3s")
	var token uint64
	next := func() *process {
		leader, line := firstOf(candidates, "leading")
		newer, err := strconv.ParseUint(strings.Fields(line)[1], 10, 64)
		require.NoError(t, err)
		require.Greater(t, newer, token)
		token = newer
		return leader
	}
	first := next()
	first.signal(syscall.SIGTERM)
	first.until("resigning")
	require.NoError(t, first.wait())
	second := next()
	second.signal(syscall.SIGKILL)
	require.Error(t, second.wait())
	require.NotContains(t, []*process{first, second}, next())
}
