package examples_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// A writer is killed inside its change. The readers wait until its lock is over, and see the configuration from before.
// The next writer finds them at work, and they see what it has written. Reads cost no command.
func TestConfig(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	args := []string{"-redis", server.Addr(), "-ttl", "2s"}
	write := func(text string) { require.NoError(t, start(t, 1, "config", append(args, "-set", text)...)[0].wait()) }
	write("limit=1 colour=blue")
	readers := start(t, 2, "config", args...)
	for _, p := range readers {
		require.Equal(t, "limit=1", p.until("config"))
	}
	killed := start(t, 1, "config", append(args, "-set", "limit=2 colour=red", "-work", "1h")...)[0]
	killed.until("changing")
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	readers = append(readers, start(t, 1, "config", args...)...)
	require.Equal(t, "limit=1", readers[2].until("config"))
	write("limit=3 colour=green")
	for _, p := range readers {
		require.Equal(t, "limit=3", p.until("config"))
	}
	readers[2].until("reads") // 1,000 of them

	for _, p := range readers {
		p.signal(syscall.SIGTERM)
		require.NoError(t, p.wait())
		var seen []string
		for _, line := range p.printed {
			if strings.HasPrefix(line, "config") {
				seen = append(seen, line)
			}
		}
		require.Equal(t, []string{"config limit=1 colour=blue", "config limit=3 colour=green"}, seen)
	}
	scripts := 0
	for name, stat := range server.Stats() {
		if strings.HasPrefix(name, "eval") {
			scripts += stat.Calls
		}
	}
	require.Less(t, scripts, 1000)
}
