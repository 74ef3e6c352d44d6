package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func testScriptReplies(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	run := func(body string, keys, args []string) rueidis.RedisMessage {
		t.Helper()
		return expect.NoError(g.Do(ctx, write("a", 9), redisguard.NewScript(body), keys, args)).In(t)
	}
	keys, args := []string{"{k}1", "{k}2"}, []string{"x", "y", "z"}

	reply := run(`return {tostring(#KEYS), KEYS[1], KEYS[2], tostring(#ARGV), ARGV[1], ARGV[3]}`, keys, args)
	parts := expect.NoError(reply.AsStrSlice()).In(t)
	require.Equal(t, []string{"2", "{k}1", "{k}2", "3", "x", "z"}, parts, "the guard's own items are not seen")
	require.Equal(t, []string{"{k}1", "{k}2"}, keys)
	require.Equal(t, []string{"x", "y", "z"}, args)

	reply = run(`return redis.call('INCRBY', KEYS[1], ARGV[1])`, keys, []string{"5"})
	require.EqualValues(t, 5, expect.NoError(reply.AsInt64()).In(t))

	for _, body := range []string{``, `return`, `return nil`, `return redis.call('GET', '{k}none')`, `-- a comment`} {
		reply := run(body, keys, nil)
		require.True(t, reply.IsNil(), body)
	}
	reply = run(`
local function kind(see)
  local seen, value = pcall(see) -- a real server raises an error for an unknown name
  return seen and type(value) or 'nil'
end
return kind(function() return token end) .. kind(function() return register end) .. kind(function() return reply end)`,
		keys, nil)
	require.Equal(t, "nilnilnil", expect.NoError(reply.ToString()).In(t), "the body sees nothing of the guard's")

	reply = run(`return redis.status_reply('FINE')`, keys, nil)
	require.Equal(t, "FINE", expect.NoError(reply.ToString()).In(t))
}

// A condition that returns a reply keeps the registers as they are and the body from running.
func testScriptConditions(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	script := redisguard.NewScriptIf(`
if ARGV[1] == 'fail' then error('raised') end
if ARGV[1] ~= '' then return ARGV[1] .. #KEYS .. #ARGV end`, `return redis.call('INCR', KEYS[1])`)
	do := func(token fencing.Token, arg string) (rueidis.RedisMessage, error) {
		return g.Do(ctx, write("a", token), script, []string{"k"}, []string{arg})
	}
	reply := expect.NoError(do(9, "no")).In(t)
	require.Equal(t, "no11", expect.NoError(reply.ToString()).In(t))
	_, err := do(9, "fail")
	require.ErrorContains(t, err, "raised")
	require.Equal(t, fencing.Registers{}, expect.NoError(g.Seen(ctx, "a", "k")).In(t))
	require.Empty(t, stored(t, client, "k"))

	reply = expect.NoError(do(8, "")).In(t)
	require.EqualValues(t, 1, expect.NoError(reply.AsInt64()).In(t))
	require.Equal(t, fencing.Registers{MaxWrite: 8}, expect.NoError(g.Seen(ctx, "a", "k")).In(t))
	_, err = do(7, "no")
	require.ErrorIs(t, err, fencing.ErrStale, "the fence comes first")
}

func testScriptErrors(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	for body, text := range map[string]string{
		`return redis.error_reply('MINE it went wrong')`: "MINE it went wrong",
		`return redis.call('LPOP')`:                      "rong number of arg",
		`error('raised')`:                                "raised",
		`end`:                                            "ompil",
	} {
		_, err := g.Do(ctx, write("a", 9), redisguard.NewScript(body), []string{"k"}, nil)
		require.ErrorContains(t, err, text)
		require.NotErrorIs(t, err, fencing.ErrStale)
	}
}

func testScriptManyArguments(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	fields := make(map[string]string)
	args := make([]string, 20_000)
	for i := range args {
		args[i] = fmt.Sprint(i)
		fields[args[i]] = "v"
	}
	script := redisguard.NewScript(`return {tostring(#ARGV), ARGV[#ARGV]}`)
	reply := expect.NoError(g.Do(ctx, write("a", 9), script, []string{"k"}, args)).In(t)
	require.Equal(t, []string{"20000", "19999"}, expect.NoError(reply.AsStrSlice()).In(t))

	require.NoError(t, g.HSet(ctx, write("a", 9), "hash", fields))
	n := expect.NoError(client.Do(ctx, client.B().Hlen().Key("hash").Build()).AsInt64()).In(t)
	require.EqualValues(t, len(fields), n)
}

// counting counts its own runs in its first key.
var counting = redisguard.NewScript(`return redis.call('INCR', KEYS[1]) .. ' ' .. #KEYS .. ' ' .. #ARGV`)

func testDoAllOfManyFences(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client, redisguard.WithRegisterTTL(time.Hour)), context.Background()
	var fences []fencing.Fence
	for i := range 3000 {
		fences = append(fences, write(fmt.Sprint("r", i), fencing.Token(i+1)))
	}
	reply := expect.NoError(g.DoAll(ctx, fences, counting, []string{"n{k}", "other{k}"}, []string{"x"})).In(t)
	require.Equal(t, "1 2 1", expect.NoError(reply.ToString()).In(t), "the script sees its own keys and arguments")
	fences[2999].Token--
	require.Equal(t, &fencing.StaleError{Resource: "r2999", Got: 2999, Seen: 3000},
		second(g.DoAll(ctx, fences, counting, []string{"n{k}"}, nil)))
	require.Equal(t, "1", stored(t, client, "n{k}"))
	ms := expect.NoError(client.Do(ctx, client.B().Pttl().Key("fencing:{k}:r2999").Build()).AsInt64()).In(t)
	require.Positive(t, ms)
}

var aclLine = regexp.MustCompile(`(?m)^ACL SETUSER .*$`)

// documentedACL returns the lines of the page, as they are pasted: two for any server and one more for a Cluster.
func documentedACL(t *testing.T) (lines [][]string) {
	t.Helper()
	page := expect.NoError(os.ReadFile("../../docs/fencing.md")).In(t)
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

const migrating = "TRYAGAIN Multiple keys request during rehashing of slot"

// While a slot moves, a Cluster answers that a call is to be sent again: the script has not run.
func TestAMovingSlotIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		g := newGuard(t, mini.Client(t))
		require.NoError(t, g.Claim(t.Context(), write("a", 1), "k")) // loads a script

		mini.Miniredis().SetError(migrating)
		time.AfterFunc(2*time.Second, func() { mini.Miniredis().SetError("") })
		mini.ResetCalls()
		require.NoError(t, g.Claim(t.Context(), write("a", 9), "k"))
		require.Less(t, mini.Calls("EVALSHA"), 15, "the pauses grow")

		ctx, lose := context.WithCancelCause(t.Context())
		mini.Miniredis().SetError(migrating)
		time.AfterFunc(time.Second, func() { lose(&fencing.LostError{Resource: "a", Token: 9, Reason: "expired"}) })
		err := g.Claim(ctx, write("a", 9), "k")
		require.ErrorIs(t, err, fencing.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, migrating)
	})
}

// What a body returns is its caller's, whatever it is: the body may have written before.
func TestTheErrorOfABodyIsNoMovingSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		g := newGuard(t, mini.Client(t))
		script := redisguard.NewScript(`redis.call('INCR', KEYS[1]) return redis.error_reply('TRYAGAIN later')`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, second(g.Do(ctx, write("a", 9), script, []string{"k"}, nil)), "later")
		require.Equal(t, "1", expect.NoError(g.Get(t.Context(), write("a", 9), "k")).In(t))
	})
}

// The data is still here, and a new register would be where the slot goes.
func TestAccessWhileASlotMoves(t *testing.T) {
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			cluster := testredis.StartCluster(t, binary, 0)
			g, ctx := newGuard(t, clusterClient(t, cluster.Nodes())), t.Context()
			require.NoError(t, g.Set(ctx, write("a", 9), "k", "old", 0))
			slot := cluster.Slot("k")
			from := cluster.Owner(slot)
			move := cluster.BeginMove(slot, cluster.Another(from))
			_, err := from.Command("EXISTS", "k", "fencing:{k}:b")
			require.EqualError(t, err, migrating)

			from.ResetStats()
			done := make(chan error, 1)
			go func() { done <- g.Set(ctx, write("b", 7), "k", "new", 0) }()
			sentAgain := func() bool {
				count := from.Info("errorstats")["errorstat_TRYAGAIN"]
				return len(done) > 0 || count != "" && count != "count=1"
			}
			require.Eventually(t, sentAgain, time.Minute, time.Millisecond)
			move.End()
			require.NoError(t, <-done)
			require.Equal(t, "new", expect.NoError(g.Get(ctx, write("b", 7), "k")).In(t))
			require.ErrorIs(t, g.Set(ctx, write("b", 6), "k", "stale", 0), fencing.ErrStale)
		})
	}
}
