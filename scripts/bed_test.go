package scripts_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// bed is a server to run scripts on: miniredis in a synctest bubble, or a real one.
type bed struct {
	t      *testing.T
	client rueidis.Client
	mini   *testredis.Mini   // nil on a real server
	server *testredis.Server // nil in fake time
}

// lockKeys are the keys of a lock in the order of prelude.lua.
func lockKeys(name string) []string {
	k := "fencelock:{" + name + "}"
	return []string{k, k + ":h", k + ":q", k + ":x"}
}

const (
	markerKey = "fencelock:marker"
	tokenTTL  = "86400000"
)

func inFakeTime(t *testing.T, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		test(&bed{t: t, client: mini.Client(t), mini: mini})
	})
}

// onServers runs a test on every server binary that is installed.
func onServers(t *testing.T, test func(b *bed), args ...string) {
	t.Helper()
	if len(testredis.Binaries()) == 0 {
		t.Run("redis-server", func(t *testing.T) { testredis.Require(t) })
	}
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			server := testredis.StartBinary(t, binary, args...)
			test(&bed{t: t, client: server.Client(t), server: server})
		})
	}
}

func everywhere(t *testing.T, test func(b *bed)) {
	t.Run("fake time", func(t *testing.T) { inFakeTime(t, test) })
	onServers(t, test)
}

// call is a script with its arguments.
type call struct {
	script scripts.Name
	keys   []string
	args   []string
}

// on is a call of one master's script for that lock: arguments 1 and 2 are put in front.
func on(name string, script scripts.Name, args ...any) call {
	return call{script, lockKeys(name), append([]string{"0", tokenTTL}, texts(args)...)}
}

// onQuorum is a call of one of several masters' scripts, under that proposal.
func onQuorum(name string, proposal int64, script scripts.Name, args ...any) call {
	return call{
		script, append(lockKeys(name), markerKey),
		append([]string{fmt.Sprintf("%d 10000 0", proposal), tokenTTL}, texts(args)...),
	}
}

func acquire(hold, owner, mode string, ttl, claim int, order string) call {
	return on("n", scripts.Acquire, hold, owner, mode, "client", ttl, claim, order, "meta of it")
}

func join(hold, owner, mode string, ttl, claim int) call {
	return on("n", scripts.Join, hold, owner, mode, "client", ttl, claim, "meta")
}
func renew(hold string, ttl int) call         { return on("n", scripts.Renew, hold, ttl) }
func refresh(holdsAndClaims ...any) call      { return on("n", scripts.Refresh, holdsAndClaims...) }
func release(hold string, tombstone int) call { return on("n", scripts.Release, hold, tombstone, 0) }

// releaseAll is release where more than one acquire of the hold may still come.
func releaseAll(hold string, tombstone int) call {
	return on("n", scripts.Release, hold, tombstone, 1)
}

func texts(args []any) []string {
	all := make([]string, 0, len(args))
	for _, a := range args {
		all = append(all, fmt.Sprint(a))
	}
	return all
}

// try runs a script: by digest, and whole where the server does not know it.
func (b *bed) try(c call) (any, error) {
	source := scripts.Source(c.script)
	sum := sha1.Sum([]byte(source))
	build := b.client.B()
	r := b.client.Do(context.Background(), build.Evalsha().Sha1(hex.EncodeToString(sum[:])).
		Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build())
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		r = b.client.Do(context.Background(), build.Eval().Script(source).
			Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build())
	}
	return r.ToAny()
}

// run is try, and fails the test if that fails. The reply consists of int64, string and []any.
func (b *bed) run(c call) []any {
	b.t.Helper()
	reply, err := b.try(c)
	require.NoError(b.t, err, "%s %q", c.script, c.args)
	return reply.([]any)
}

func (b *bed) do(args ...string) rueidis.RedisResult {
	return b.client.Do(context.Background(), b.client.B().Arbitrary(args...).Build())
}

func (b *bed) flushAll() {
	b.t.Helper()
	require.NoError(b.t, b.do("FLUSHALL").Error())
}

// pass lets time go by. On a real server it is the server's own clock that is waited for.
func (b *bed) pass(d time.Duration) {
	b.t.Helper()
	if b.mini != nil {
		time.Sleep(d)
		return
	}
	for from := b.now(); b.now().Sub(from) < d; {
		time.Sleep(time.Millisecond)
	}
}

func (b *bed) now() time.Time {
	b.t.Helper()
	clock, err := b.do("TIME").AsStrSlice()
	require.NoError(b.t, err)
	seconds, _ := strconv.ParseInt(clock[0], 10, 64)
	micros, _ := strconv.ParseInt(clock[1], 10, 64)
	return time.UnixMicro(seconds*1e6 + micros)
}

// dump returns all keys with their contents and what is left of them.
func (b *bed) dump() map[string][]string {
	b.t.Helper()
	names, err := b.do("KEYS", "*").AsStrSlice()
	require.NoError(b.t, err)
	all := map[string][]string{}
	for _, key := range names {
		kind, err := b.do("TYPE", key).ToString()
		require.NoError(b.t, err)
		var content []string
		switch kind {
		case "string":
			var text string
			text, err = b.do("GET", key).ToString()
			content = []string{text}
		case "hash":
			var fields map[string]string
			fields, err = b.do("HGETALL", key).AsStrMap()
			for field, text := range fields {
				content = append(content, field+"="+text)
			}
			slices.Sort(content)
		case "zset":
			var scored []rueidis.ZScore
			scored, err = b.do("ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()
			for _, z := range scored {
				content = append(content, fmt.Sprintf("%s %.0f", z.Member, z.Score))
			}
		}
		require.NoError(b.t, err, kind)
		left, err := b.do("PTTL", key).AsInt64()
		require.NoError(b.t, err)
		all[key] = append(content, fmt.Sprintf("left %d", left))
	}
	return all
}
