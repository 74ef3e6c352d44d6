package scripts_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// env is a server to run scripts on: miniredis in a synctest bubble, or a real one.
type env struct {
	t      *testing.T
	client rueidis.Client
	mini   *testredis.Mini   // nil on a real server
	server *testredis.Server // nil in fake time
	skewed *testredis.Skewed // of onStandingClocks
	at     time.Time         // what its clock shows
	passed time.Duration     // by pass, on a real server
	name   string            // of the lock, instead of n
	alone  bool              // calls name the lock twice, as while its slot is on its way to another node
}

func inFakeTime(t *testing.T, test func(e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		test(&env{t: t, client: mini.Client(t), mini: mini})
	})
}

// onServers runs a test on the server binaries of testredis.Binaries.
func onServers(t *testing.T, test func(e *env), args ...string) {
	t.Helper()
	if len(testredis.Binaries()) == 0 {
		t.Run("redis-server", func(t *testing.T) { testredis.Require(t) })
	}
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			server := testredis.StartBinary(t, binary, args...)
			test(&env{t: t, client: server.Client(t), server: server})
		})
	}
}

func everywhere(t *testing.T, test func(e *env)) {
	t.Run("fake time", func(t *testing.T) { inFakeTime(t, test) })
	onServers(t, test)
}

// try runs a script: by digest, and whole where the server does not know it.
func (e *env) try(c call) (any, error) {
	build := e.client.B()
	if e.name != "" { // in a Cluster
		c.keys = lockKeys(e.name)
	}
	if e.alone {
		c.keys = []string{c.keys[0], c.keys[0]}
	}
	r := e.client.Do(context.Background(), build.Evalsha().Sha1(digests[c.script]).
		Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build())
	if refusal, ok := rueidis.IsRedisErr(r.Error()); ok && refusal.IsNoScript() {
		r = e.client.Do(context.Background(), build.Eval().Script(scripts.Source(c.script)).
			Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build())
	}
	reply, err := r.ToAny()
	return scriptfuzz.InFull(c.script, c.args, reply), err
}

// run is try, and fails the test if that fails. The reply consists of int64, string and []any.
func (e *env) run(c call) []any {
	e.t.Helper()
	reply, err := e.try(c)
	require.NoError(e.t, err, "%s %q", c.script, c.args)
	fields, ok := scriptfuzz.Fields(reply)
	if c.script == scripts.Renew {
		fields, ok = scriptfuzz.Renewed(fields, (len(c.args)-3)/2)
	}
	require.True(e.t, ok, "%s %q replies %v", c.script, c.args, reply)
	return fields
}

func (e *env) do(args ...string) rueidis.RedisResult {
	return e.client.Do(context.Background(), e.client.B().Arbitrary(args...).Build())
}

func (e *env) flushAll() {
	e.t.Helper()
	require.NoError(e.t, e.do("FLUSHALL").Error())
}

// pass lets time go by for the lock. A real server's clock cannot be moved, so there every expiry of the lock is moved
// back instead: what a test sees does not depend on how long it takes.
func (e *env) pass(d time.Duration) {
	e.t.Helper()
	if e.mini != nil {
		time.Sleep(d)
		return
	}
	if e.skewed != nil {
		e.stand(e.at.Add(d))
		return
	}
	e.passed += d
	ms := d.Milliseconds()
	fields, err := e.do("HGETALL", lockKey).AsStrMap()
	require.NoError(e.t, err)
	for field, text := range fields {
		if field == "w" {
			if len(text) == 64 {
				e.setFields(lockKey, "w", text[:16]+leading(earlier(text[16:29], ms), 13)+text[29:])
			}
		} else if field == "b" {
			e.setFields(lockKey, "b", leading(earlier(text, ms), 13))
		} else if r := record.FindStringSubmatch(text); r != nil {
			expiry, since := earlier(r[2], ms), earlier(r[4], ms)
			e.setFields(lockKey, field, strings.Join([]string{r[1], expiry, r[3], since, r[5]}, " "))
		}
	}
	for _, key := range []string{lockKeys("n")[1], lockKeys("n")[3]} {
		members, err := e.do("ZRANGE", key, "0", "-1").AsStrSlice()
		require.NoError(e.t, err)
		for _, member := range members {
			require.NoError(e.t, e.do("ZINCRBY", key, fmt.Sprint(-ms), member).Error())
		}
	}
}

func earlier(text string, ms int64) string {
	at, _ := strconv.ParseInt(text, 10, 64)
	return fmt.Sprint(at - ms)
}

func (e *env) now() time.Time {
	e.t.Helper()
	clock, err := e.do("TIME").AsStrSlice()
	require.NoError(e.t, err)
	seconds, _ := strconv.ParseInt(clock[0], 10, 64)
	micros, _ := strconv.ParseInt(clock[1], 10, 64)
	return time.UnixMicro(seconds*1e6 + micros)
}

// dump returns all keys with their contents and what is left of them.
func (e *env) dump() map[string][]string {
	e.t.Helper()
	names, err := e.do("KEYS", "*").AsStrSlice()
	require.NoError(e.t, err)
	all := map[string][]string{}
	for _, key := range names {
		kind, err := e.do("TYPE", key).ToString()
		require.NoError(e.t, err)
		var content []string
		switch kind {
		case "string":
			var text string
			text, err = e.do("GET", key).ToString()
			content = []string{text}
		case "hash":
			var fields map[string]string
			fields, err = e.do("HGETALL", key).AsStrMap()
			for field, text := range fields {
				content = append(content, field+"="+text)
			}
			slices.Sort(content)
		case "zset":
			var scored []rueidis.ZScore
			scored, err = e.do("ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()
			for _, z := range scored {
				content = append(content, fmt.Sprintf("%s %.0f", z.Member, z.Score))
			}
		}
		require.NoError(e.t, err, kind)
		left, err := e.do("PTTL", key).AsInt64()
		require.NoError(e.t, err)
		all[key] = append(content, fmt.Sprintf("left %d", left))
	}
	return all
}

// field returns a field of a hash, "" where it is absent.
func (e *env) field(key, field string) string {
	e.t.Helper()
	text, err := e.do("HGET", key, field).ToString()
	if rueidis.IsRedisNil(err) {
		return ""
	}
	require.NoError(e.t, err)
	return text
}

// members returns how many members the lock's hash counts in one of its zsets, "" where it counts nothing.
func (e *env) members(of string) string {
	e.t.Helper()
	counts := strings.Fields(e.field(lockKey, "n"))
	for i, key := range []string{"holds", "queue", "aside"} {
		if key == of && i < len(counts) && counts[i] != "0" {
			return counts[i]
		}
	}
	return ""
}

func (e *env) setFields(key string, fieldsAndTexts ...any) {
	e.t.Helper()
	require.NoError(e.t, e.do(append([]string{"HSET", key}, texts(fieldsAndTexts)...)...).Error())
}

// subscribe returns what comes to a channel from now on.
func (e *env) subscribe(channel string) <-chan string {
	e.t.Helper()
	c, done := e.client.Dedicate()
	e.t.Cleanup(done)
	heard := make(chan string, 10_000)
	c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { heard <- m.Message }})
	require.NoError(e.t, c.Do(context.Background(), c.B().Subscribe().Channel(channel).Build()).Error())
	return heard
}

// pipeline sends calls together; the server has to know their scripts.
func (e *env) pipeline(calls []call) {
	e.t.Helper()
	commands := make(rueidis.Commands, len(calls))
	for i, c := range calls {
		commands[i] = e.client.B().Evalsha().Sha1(digests[c.script]).
			Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	}
	for i, r := range e.client.DoMulti(context.Background(), commands...) {
		require.NoError(e.t, r.Error(), "%s %q", calls[i].script, calls[i].args)
	}
}

// digests name the scripts in calls.
var digests = func() map[scripts.Name]string {
	all := map[scripts.Name]string{}
	for name, source := range scripts.All() {
		sum := sha1.Sum([]byte(source))
		all[name] = hex.EncodeToString(sum[:])
	}
	return all
}()

func TestMain(m *testing.M) {
	scratch.Use("fencelock-scripts")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}

// call is a script with its arguments.
type call struct {
	script scripts.Name
	keys   []string
	args   []string
}

const (
	ttl       = 40_000 // ms, longer than any test takes
	claim     = 20_000 // ms
	markerKey = "fencelock:master"
	channel   = "fencelock:c:client"
	setID     = "01JSET:run" // the marker that newMarker sets
)

// lockKeys are the keys of a lock in the order of lock.lua.
func lockKeys(name string) []string {
	k := "fencelock:{" + name + "}"
	return []string{k, k + ":h", k + ":q", k + ":x"}
}

var lockKey = lockKeys("n")[0]

var deaf = "p" + channel // nobody listens there

// ulid makes an id of full length from a short one: they order as the short ones do.
func ulid(short string) string {
	if short == "" || short == "-" || short[0] == '+' {
		return short
	}
	return strings.Repeat("0", 26-len(short)) + short
}

// request is one acquisition as a client describes it to the scripts.
type request struct {
	hold, owner string // short; no owner: its own, as the hold's id is; +B: a shared hold's, with blocks of B tokens
	from        string // short: the hold that this one converts
	mode        string
	route       string // "": a channel whose count of listeners says nothing
	ttl, claim  int
	meta        string
}

func (r request) details() string {
	owner := r.owner
	if owner == "" {
		owner = "-"
	}
	owner = ulid(owner)
	if r.from != "" {
		owner += "^" + ulid(r.from)
	}
	route := r.route
	if route == "" {
		route = "b" + channel
	}
	return fmt.Sprintf("%s %d %s %s %s", r.mode, r.claim, owner, route, r.meta)
}

// on is a call of one master's script for that lock.
func on(name string, script scripts.Name, args ...any) call {
	return call{script, lockKeys(name)[:1], scriptfuzz.WithVote(script, wire.Alone, texts(args))}
}

// vote is the first argument of a script on one of several masters.
type vote struct {
	proposal int64
	seen     string
	check    int
}

func (v vote) text() string {
	if v.seen == "" {
		v.seen = "-"
	}
	return fmt.Sprintf("%016d %s 10000 %d", v.proposal, v.seen, v.check)
}

// of turns a call of one master's script into one of several masters'.
func (v vote) of(c call) call {
	args := scriptfuzz.WithVote(c.script, v.text(), scriptfuzz.WithoutVote(c.script, c.args))
	return call{c.script, append(append([]string{}, c.keys...), markerKey), args}
}

func ask(r request, order wire.Order) call {
	asked := wire.Acquire{Hold: ulid(r.hold), TTL: wire.Millis(fmt.Sprint(r.ttl)), Order: order, Details: r.details()}
	return call{scripts.Acquire, lockKeys("n")[:1], scriptfuzz.WithVote(scripts.Acquire, wire.Alone, asked.Args(nil))}
}

func reader(hold string) request {
	return request{hold: hold, mode: "r", ttl: ttl, claim: claim, meta: "meta of it"}
}

func writer(hold string) request {
	return request{hold: hold, mode: "w", ttl: ttl, claim: claim, meta: "meta of it"}
}

func (r request) by(owner string) request        { r.owner = owner; return r }
func (r request) shared(block int) request       { return r.by(fmt.Sprint("+", block)) }
func (r request) converting(from string) request { r.from = from; return r }
func (r request) lasting(ms int) request         { r.ttl = ms; return r }
func (r request) waiting(ms int) request         { r.claim = ms; return r }
func (r request) listening(to string) request    { r.route = to; return r }
func acquire(r request) call                     { return ask(r, wire.ByArrival) }
func tryAcquire(r request) call                  { return ask(r, wire.NoQueue) }
func release(hold string, tombstone int) call {
	return on("n", scripts.Release, ulid(hold), tombstone, 0)
}

// endHold is release of a hold with a minimum: least after its grant, and rest from now at most.
func endHold(hold string, tombstone, least, rest int) call {
	return on("n", scripts.Release, ulid(hold), tombstone, 0, fmt.Sprint(least, " ", rest))
}

// padded is a token as clients send it.
func padded(token any) string { return leading(fmt.Sprint(token), 16) }

func leading(text string, width int) string {
	return strings.Repeat("0", max(width-len(text), 0)) + text
}

func raise(hold string, token int64) call { return on("n", scripts.Raise, ulid(hold), token) }
func yield(hold string, token int64) call { return on("n", scripts.Yield, ulid(hold), token) }

// renew is of any hold, and learns of waiters.
func renew(hold string, ttl int, token any) call {
	return on("n", scripts.Renew, ttl, "s", ulid(hold), padded(token))
}

// mark is renew of a hold that its client leaves to the one that has the secret.
func mark(hold string, token any) call {
	c := renew(hold, ttl, token)
	c.args[2] += "#" + wire.MarkOf(secret)
	return c
}

const secret = "of the ticket"

// releaseAll is release where more than one acquire of the hold may still come.
func releaseAll(hold string, tombstone int) call {
	return on("n", scripts.Release, ulid(hold), tombstone, 1)
}

func join(r request) call {
	return on("n", scripts.Join, ulid(r.hold), ulid(r.owner), r.mode, r.ttl, r.details(), 0)
}

func regain(r request, token int64, trusted int) call {
	return on("n", scripts.Regain, ulid(r.hold), r.ttl, token, r.details(), trusted)
}

// releaseOf is release of a lease that knows this master's own grant.
func releaseOf(r request, minimum string, token, own int64) call {
	return on("n", scripts.Release, ulid(r.hold), 0, 0, fmt.Sprint(minimum, " ", token, " ", own))
}

// regainOf is regain of a lease that knows this master's own grant.
func regainOf(r request, token int64, own any) call {
	return on("n", scripts.Regain, ulid(r.hold), r.ttl, token, r.details(), 0, own)
}

func refresh(holds ...string) call { return refreshBy("-", holds...) }

// refreshBy is refresh by a process that listens there now.
func refreshBy(route string, holds ...string) call {
	args := []any{route}
	for _, hold := range holds {
		args = append(args, ulid(hold))
	}
	return on("n", scripts.Refresh, args...)
}

func inspect() call { return call{scripts.Inspect, lockKeys("n")[:1], nil} }

func texts(args []any) []string {
	all := make([]string, 0, len(args))
	for _, a := range args {
		all = append(all, fmt.Sprint(a))
	}
	return all
}

// newMarker lets this one of several masters vote.
func (e *env) newMarker() {
	e.t.Helper()
	e.setFields(markerKey, "set", "01JSET", "run", "run", "id", setID, "until", 0)
}

// onlyTokensStay requires that nothing is left but the hash with the counters.
func (e *env) onlyTokensStay() {
	e.t.Helper()
	for key, content := range e.dump() {
		if key == markerKey {
			continue
		}
		require.Equal(e.t, lockKey, key)
		for _, entry := range content[:len(content)-1] {
			require.Regexp(e.t, `^(w=\d{24}(\d{16})?|d=|[bfs]=\d+|m=.*)$`, entry)
		}
		require.Regexp(e.t, `^left [1-9]`, content[len(content)-1])
	}
}

func status(c call, reply []any) int64 {
	switch c.script {
	case scripts.Refresh:
		return reply[3].(int64)
	case scripts.Renew:
		return reply[1].(int64)
	default:
		return reply[0].(int64)
	}
}

// answer is the first number of a reply.
func answer(e *env, c call) int64 {
	e.t.Helper()
	return e.run(c)[0].(int64)
}

// record is a record of lock.lua: first word, expiry, token, since, details.
var record = regexp.MustCompile(`^(\w+) (\d+) (\d+) (\d+) (.*)$`)

// counter is field w of a lock that is free.
func counter(token int64) string { return fmt.Sprintf("%016d00000000", token) }

// counters returns what field w has: the largest token of any grant and of a write grant, and the write hold or "".
func (e *env) counters(key string) (t, tw int64, writer string) {
	e.t.Helper()
	w, marks := e.field(key, "w"), strings.Fields(e.field(key, "m"))
	parse := func(text string) (n int64) { n, _ = strconv.ParseInt(text, 10, 64); return n }
	switch t = parse(w[:16]); {
	case len(w) >= 40 && len(w) < 64:
		return t, parse(w[24:40]), ""
	case len(w) == 64 && parseFlag(w)&8 > 0 && marks[2] != "-":
		return t, parse(marks[2]), w[29:55]
	case len(w) == 64:
		return t, t, w[29:55]
	}
	return t, t, ""
}

// parseFlag returns the last part of a field w that has a write hold.
func parseFlag(w string) int64 {
	flag, _ := strconv.ParseInt(w[63:], 32, 64)
	return flag
}

// begun returns the since of the write hold.
func (e *env) begun() string {
	e.t.Helper()
	w := e.field(lockKey, "w")
	if parseFlag(w)&2 > 0 {
		return e.field(lockKey, "b")
	}
	return w[16:29]
}
