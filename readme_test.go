package fencelock_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Every block of Go in these pages stands, line by line, in example_test.go, so it compiles.
func TestCodeOfThePages(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	compiled := flat(string(source))
	for _, name := range []string{"README.md", "docs/migration.md"} {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		blocks := strings.Split(string(page), "```go\n")[1:]
		require.NotEmpty(t, blocks)
		for _, block := range blocks {
			code, _, closed := strings.Cut(block, "```")
			require.True(t, closed)
			require.True(t, strings.Contains(compiled, flat(code)), "in %s, but not in example_test.go:\n%s", name, code)
		}
	}
}

// flat drops the indentation, which a block of the README has less of.
func flat(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// And it does what it says, where an embedded server can stand in.
func TestReadmeRuns(t *testing.T) {
	server := miniredis.RunT(t)
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	require.NoError(t, err)
	defer client.Close()
	locker, err := rwlock.New(client)
	require.NoError(t, err)
	defer locker.Close()
	ctx, r, calls := t.Context(), &readme{}, 0
	work := func(ctx context.Context) error {
		calls++
		return context.Cause(ctx)
	}
	require.NoError(t, r.lease(ctx, locker, work))
	require.NoError(t, r.mutex(ctx, locker, work))
	require.NoError(t, r.nested(ctx, locker, work))
	require.NoError(t, r.guard(ctx, fencing.Fence{Resource: "x", Token: 1, Mode: fencing.Write}, work))
	require.Equal(t, 4, calls)
}
