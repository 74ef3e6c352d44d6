package redisguard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
)

func testScriptReplies(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	run := func(body string, keys, args []string) rueidis.RedisMessage {
		t.Helper()
		reply, err := g.Do(ctx, write("a", 9), redisguard.NewScript(body), keys, args)
		require.NoError(t, err)
		return reply
	}
	keys, args := []string{"{k}1", "{k}2"}, []string{"x", "y", "z"}

	reply := run(`return {tostring(#KEYS), KEYS[1], KEYS[2], tostring(#ARGV), ARGV[1], ARGV[3]}`, keys, args)
	parts, err := reply.AsStrSlice()
	require.NoError(t, err)
	require.Equal(t, []string{"2", "{k}1", "{k}2", "3", "x", "z"}, parts, "the guard's own items are not seen")
	require.Equal(t, []string{"{k}1", "{k}2"}, keys)
	require.Equal(t, []string{"x", "y", "z"}, args)

	reply = run(`return redis.call('INCRBY', KEYS[1], ARGV[1])`, keys, []string{"5"})
	n, err := reply.AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 5, n)

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
	text, err := reply.ToString()
	require.NoError(t, err)
	require.Equal(t, "nilnilnil", text, "the body sees nothing of the guard's")

	reply = run(`return redis.status_reply('FINE')`, keys, nil)
	text, err = reply.ToString()
	require.NoError(t, err)
	require.Equal(t, "FINE", text)
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
	reply, err := g.Do(ctx, write("a", 9), script, []string{"k"}, args)
	require.NoError(t, err)
	parts, err := reply.AsStrSlice()
	require.NoError(t, err)
	require.Equal(t, []string{"20000", "19999"}, parts)

	require.NoError(t, g.HSet(ctx, write("a", 9), "hash", fields))
	n, err := client.Do(ctx, client.B().Hlen().Key("hash").Build()).AsInt64()
	require.NoError(t, err)
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
	reply, err := g.DoAll(ctx, fences, counting, []string{"n{k}", "other{k}"}, []string{"x"})
	require.NoError(t, err)
	text, err := reply.ToString()
	require.NoError(t, err)
	require.Equal(t, "1 2 1", text, "the script sees its own keys and arguments")
	fences[2999].Token--
	require.Equal(t, &fencing.StaleError{Resource: "r2999", Got: 2999, Seen: 3000},
		second(g.DoAll(ctx, fences, counting, []string{"n{k}"}, nil)))
	require.Equal(t, "1", stored(t, client, "n{k}"))
	ms, err := client.Do(ctx, client.B().Pttl().Key("fencing:{k}:r2999").Build()).AsInt64()
	require.NoError(t, err)
	require.Positive(t, ms)
}
