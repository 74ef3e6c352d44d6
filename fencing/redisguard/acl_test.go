package redisguard_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

var aclLine = regexp.MustCompile(`(?m)^ACL SETUSER .*$`)

// documentedACL returns the lines of the page, as they are pasted: two for any server and one more for a Cluster.
func documentedACL(t *testing.T) (lines [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/fencing.md")
	require.NoError(t, err)
	for _, line := range aclLine.FindAllString(string(page), -1) {
		lines = append(lines, strings.Fields(line))
	}
	require.Len(t, lines, 3)
	return lines
}

func as(t *testing.T, node *testredis.Server, user string, forceSingle bool) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{node.Addr()}, Username: user, Password: "secret",
		DisableCache: true, ForceSingleClient: forceSingle,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// everyMethod does what the documented user is to be able to do, on a server without its data and scripts.
func everyMethod(t *testing.T, client rueidis.Client, opts ...redisguard.Option) error {
	t.Helper()
	g, ctx := newGuard(t, client, opts...), context.Background()
	const resource, key = "orders/42", "order:{42}:state"
	var errs []error
	_, err := g.Get(ctx, read(resource, 1), key)
	if !rueidis.IsRedisNil(err) {
		errs = append(errs, err)
	}
	_, err = g.Seen(ctx, resource, key)
	errs = append(errs, err,
		g.Claim(ctx, write(resource, 2), key),
		g.Set(ctx, write(resource, 2), key, "v", time.Hour),
		g.Derive(ctx, read(resource, 3), key, "v", 0),
		g.HSet(ctx, write(resource, 3), "order:43", map[string]string{"f": "v"}),
		g.Del(ctx, write(resource, 3), key))
	return errors.Join(errs...)
}

func TestDocumentedACL(t *testing.T) {
	server, ctx := testredis.Start(t), context.Background()
	lines := documentedACL(t)
	for _, line := range lines[:2] {
		command(t, server, line...)
	}
	client := as(t, server, lines[0][2], true)
	require.NoError(t, everyMethod(t, client))
	command(t, server, "FLUSHALL")
	require.NoError(t, everyMethod(t, client, redisguard.WithRegisterTTL(time.Hour)))

	g := newGuard(t, client)
	require.ErrorContains(t, g.Set(ctx, write("orders/42", 9), "invoice:7", "v", 0), "NOPERM", "other data")
	require.ErrorContains(t, g.Set(ctx, write("invoices/7", 9), "order:7", "v", 0), "NOPERM", "other registers")
	for _, forbidden := range [][]string{
		{"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"CLIENT", "KILL", "TYPE", "normal"}, {"KEYS", "*"}, {"GET", "invoice:7"},
	} {
		err := client.Do(ctx, client.B().Arbitrary(forbidden...).Build()).Error()
		require.ErrorContains(t, err, "NOPERM", "%v", forbidden)
	}
}

// Each right is needed: without any one of them, something that the package does is refused.
func TestDocumentedACLHasNothingToSpare(t *testing.T) {
	server := testredis.Start(t)
	lines := documentedACL(t)
	rights := slices.Concat(lines[0][3:], lines[1][3:])
	for i, right := range rights {
		if !strings.HasPrefix(right, "+") && !strings.HasPrefix(right, "~") || right == "+@connection" {
			continue // rueidis does without what is in it, where it has to
		}
		command(t, server, "FLUSHALL")
		command(t, server, "SCRIPT", "FLUSH")
		fewer := slices.Delete(slices.Clone(rights), i, i+1)
		command(t, server, slices.Concat([]string{"ACL", "SETUSER", "narrow"}, fewer)...)
		client := as(t, server, "narrow", true)
		err := everyMethod(t, client)
		if err == nil {
			command(t, server, "FLUSHALL")
			err = everyMethod(t, client, redisguard.WithRegisterTTL(time.Hour))
		}
		require.Error(t, err, "without %s", right)
		require.Regexp(t, "NOPERM|can't run this command|no permission", err.Error(), "without %s", right)
	}
}

// A user without a right that the registers need writes nothing, so that it learns of no write by an error.
func TestRightsAreCheckedBeforeTheAccess(t *testing.T) {
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			server, ctx := testredis.StartBinary(t, binary), context.Background()
			lines := documentedACL(t)
			rights := slices.Concat(lines[0][3:], lines[1][3:])
			script := redisguard.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
			for _, tt := range []struct {
				right string
				opts  []redisguard.Option
			}{{"+persist", nil}, {"+pexpire", []redisguard.Option{redisguard.WithRegisterTTL(time.Hour)}}, {"+hset", nil}} {
				fewer := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return right == tt.right })
				command(t, server, slices.Concat([]string{"ACL", "SETUSER", "narrow"}, fewer)...)
				g := newGuard(t, as(t, server, "narrow", true), tt.opts...)
				for _, known := range []bool{false, true} {
					command(t, server, "FLUSHALL")
					if known && tt.right != "+hset" { // the register need not rise then
						command(t, server, "HSET", "fencing:{order:1}:orders/1", "w", "9")
					}
					f, key := write("orders/1", 9), "order:1"
					for _, err := range []error{
						g.Set(ctx, f, key, "v", 0),
						second(g.Do(ctx, f, script, []string{key}, []string{"v"})),
						second(g.DoAll(ctx, []fencing.Fence{f}, script, []string{key}, []string{"v"})),
					} {
						require.Error(t, err, tt.right)
						require.Regexp(t, "NOPERM|can't run this command|no permission", err.Error(), tt.right)
					}
					require.EqualValues(t, 0, command(t, server, "EXISTS", key), "without %s", tt.right)
				}
			}
		})
	}
}
