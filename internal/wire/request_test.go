package wire_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

func TestArguments(t *testing.T) {
	for script, tt := range map[scripts.Name]struct {
		args []string
		want string
	}{
		scripts.Acquire: {
			wire.Acquire{
				Hold: "h", TTL: "40000", Order: wire.NoQueue, Details: "w 1 -^i pc", Adopts: wire.Adoption{Token: 7, Secret: "s"},
			}.Args(nil), "h   400000,w 1 -^i pc,0,7,s",
		},
		scripts.Join: {
			wire.Join{Hold: "h", Owner: "o", Mode: fencing.Read, TTL: "40000", Details: "d", Token: 7}.Args(nil),
			"h,o,r,40000,d,7",
		},
		scripts.Raise: {wire.Raise{Hold: "h", Token: fencing.MaxToken}.Args(nil), "h,9007199254740991"},
		scripts.Yield: {wire.Yield{Hold: "h", Token: 7, Leave: true}.Args(nil), "h,7,1"},
		scripts.Regain: {
			wire.Regain{Hold: "h", TTL: "40000", Token: 7, Details: "d", Trusted: true, Own: 9}.Args(nil), "h,40000,7,d,1,9",
		},
		scripts.Renew: {
			wire.Renew{{Key: "k:h", Hold: "h", TTL: "40000", Kind: wire.RenewShared, Token: 7}}.Args(),
			"40000,s,h,0000000000000007",
		},
		scripts.Refresh: {
			wire.Refresh{Route: wire.Published("c")}.Args(nil), "pc",
		},
		scripts.Release: {
			wire.Release{Hold: "h", Tombstone: wire.Tombstone{TTL: "60000", Again: true}}.Args(nil), "h,60000,2",
		},
	} {
		require.Equal(t, tt.want, strings.Join(tt.args, ","), script)
		require.Len(t, tt.args, fixedArguments(t, script)-1, "%s: all but the vote", script)
	}
	require.Equal(t, []string{"h", "7"}, wire.Yield{Hold: "h", Token: 7}.Args(nil))
	mark := wire.MarkOf("s")
	require.Equal(t, "a0f1490a20d0211c997b44bc357e1972deab8ae3", mark)
	require.Equal(t, []string{"h"}, wire.Release{Hold: "h"}.Args(nil), "the rest is as if it were there")
	require.Equal(t, []string{"h", "60000"}, wire.Release{Hold: "h", Tombstone: wire.Tombstone{TTL: "60000"}}.Args(nil))
	require.Equal(t, []string{"h", "0", "0", "2000 1000"}, wire.Release{
		Hold: "h", Minimum: wire.Minimum{Least: 2 * time.Second, Rest: time.Second},
	}.Args(nil))
	require.Equal(t, []string{"h", "0", "0", "0 0 7 9"}, wire.Release{
		Hold: "h", Outrun: wire.Outrun{Token: 7, Grant: 9},
	}.Args(nil))
	require.Equal(t, []string{"h", "0", "0", "2000 1000 7 9"}, wire.Release{
		Hold: "h", Minimum: wire.Minimum{Least: 2 * time.Second, Rest: time.Second}, Outrun: wire.Outrun{Token: 7, Grant: 9},
	}.Args(nil))
	require.Equal(t, []string{"h", "60000", "1", "i", "j"}, wire.Release{
		Hold: "h", Tombstone: wire.Tombstone{TTL: "60000", Strays: true}, Others: []string{"i", "j"},
	}.Args(nil))
	require.Equal(t, []string{"-", "h"}, wire.Refresh{Holds: []string{"h"}}.Args(nil))
}

// The request of an acquire is the end of field w, and names what it is for.
func TestRequests(t *testing.T) {
	long := strings.Repeat("m", 64-len("w 3000 - pc "))
	for details, want := range map[string]struct {
		kind  string
		plain bool
	}{
		"w 3000 - pc " + long:     {"0", true},
		"w 3000 - pc m" + long:    {"1", true},
		"w 3000 -^h pc -":         {"0", false},
		"w 3000 +9 pc -":          {"4", false},
		"w 3000 +9^h pc " + long:  {"5", false},
		"w 3000 o pc - m":         {"8", false},
		"w 3000 o^h pc " + long:   {"9", false},
		"w 3000 " + hold + " pc ": {"0", false},
		"r 3000 - pc m" + long:    {"r", false},
		"r 3000 -^h pc ":          {"r", false},
		"r 3000 +1 pc ":           {"s", false},
		"r 3000 o pc ":            {"n", false},
	} {
		asks := wire.Acquire{Hold: hold, TTL: "86400000", Order: wire.ByHold, Details: details}
		args := asks.Args(nil)
		require.Equal(t, []string{hold + "86400000" + want.kind, details}, args, details)
		asks.Made = "of another hold"
		require.Equal(t, args, asks.Args(nil))
		require.Equal(t, want.plain, wire.Asked(args).IsPlain(), details)
		require.True(t, wire.Asked(args).Queues())
		other := asks
		other.Hold = strings.ToLower(hold)
		require.Equal(t, !strings.Contains(details, hold), wire.Asked(args).IsLike(other.Args(nil)))
		other.TTL = "1"
		require.False(t, wire.Asked(args).IsLike(other.Args(nil)))
		other = asks
		other.Order = wire.NoQueue
		require.False(t, wire.Asked(args).IsLike(other.Args(nil)))
		require.False(t, wire.Asked(other.Args(nil)).Queues())
	}
}

var numbered = regexp.MustCompile(`(?:^|[ ,;])(\d+) `)

// fixedArguments returns how many arguments the header of a script numbers, the vote included.
func fixedArguments(t *testing.T, script scripts.Name) (n int) {
	_, header, ok := strings.Cut(scripts.Source(script), "-- ARGV ")
	require.True(t, ok)
	header, _, ok = strings.Cut(header, "-- Reply")
	require.True(t, ok)
	if script == scripts.Renew {
		return 3 + 2 // and for every lease: hold, token
	}
	header = strings.ReplaceAll(header, "--", "")
	for strings.Contains(" "+strings.Join(strings.Fields(header), " "), " "+strconv.Itoa(n+1)+" ") {
		n++
	}
	require.Regexp(t, numbered, header)
	return n
}

func TestArgumentsStayInTheCallersArray(t *testing.T) {
	join := wire.Join{Hold: hold, Owner: other, Mode: fencing.Write, TTL: "40000", Details: "d", Token: 7}
	acquire := wire.Acquire{Hold: hold, TTL: "40000", Order: wire.ByArrival, Details: "w 1 - pc", Made: hold + "   400000"}
	release := wire.Release{Hold: hold}
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var array [6]string
		n += len(acquire.Args(array[:0])) + len(join.Args(array[:0])) + len(release.Args(array[:0]))
	}))
}

func TestVotes(t *testing.T) {
	require.Equal(t, "0", wire.Vote{}.Arg(), "a single master")
	require.NotEqual(t, "0", wire.Vote{Quarantine: "30000"}.Arg(), "without an id it is not the vote of a single master")
	vote := wire.Vote{Proposal: 1_700_000_000_000_000, Seen: "set:run", Quarantine: "30000"}
	require.Equal(t, "1700000000000000 set:run 30000 0", vote.Arg())
	require.Equal(t, "1700000000000000", vote.ProposalArg())
	vote.Check, vote.Seen, vote.Proposal = true, wire.SeenNone, 7
	require.Equal(t, "0000000000000007 ? 30000 1", vote.Arg(), "scripts compare it as a text")
	require.Equal(t, "0000000000000000", wire.Vote{}.ProposalArg())
}

func TestKeys(t *testing.T) {
	single, several := wire.NewKeyspace("p", 1), wire.NewKeyspace("p", 3)
	for name, lock := range map[string]string{
		"orders": "p:{orders}", "a{b}c": "p:{a%7Bb%7Dc}", "a%7Bb": "p:{a%257Bb}", "": "p:{}",
	} {
		key := single.Of(name)
		require.Equal(t, lock, key)
		require.Equal(t, []string{lock, lock + ":h", lock + ":q", lock + ":x"}, wire.AllOf(key))
		require.Equal(t, []string{lock}, single.ForCall(nil, key))
		require.Equal(t, []string{lock, "p:master"}, several.ForCall(nil, key))
		asked := wire.Acquire{TTL: "40000", Details: "w 3000 +9 pc "}
		id, made, of := single.NewHold([]byte(hold), asked, name)
		require.Equal(t, hold, id)
		require.Equal(t, hold+"   400004", made)
		require.Equal(t, key, of)
	}
	require.Equal(t, "p:c:client", single.Channel("client"))
}

func TestRenewalsOfSeveralLocks(t *testing.T) {
	keys := wire.NewKeyspace("p", 3)
	renew := wire.Renew{
		{Key: keys.Of("a"), Hold: "h", TTL: "1000", Kind: "r", Token: 1}, {Key: keys.Of("b"), Hold: "i", Token: 234},
	}
	require.Equal(t, []string{"p:{a}", "p:{b}", "p:master"}, renew.Keys(keys.Marker))
	require.Equal(t, []string{"p:{a}", "p:{b}"}, renew.Keys(""))
	require.Equal(t, []string{"1000", "r", "h", "0000000000000001", "i", "0000000000000234"}, renew.Args())
}

// A pattern finds the first key of each lock whose name begins so, and a key says the name.
func TestKeysOfANamePrefix(t *testing.T) {
	keys := wire.NewKeyspace("p*", 1)
	require.Equal(t, `p\*:{a\[\*\?\\\]%7B*}`, keys.Pattern(`a[*?\]{`))
	for _, name := range []string{"a", "{", "}", "%", "%7B", "a:{b}:h", "名"} {
		got, ok := keys.NameOf(keys.Of(name))
		require.True(t, ok)
		require.Equal(t, name, got)
	}
	for _, key := range []string{"p*:{a}:h", "p*:{}", "p*:{a", "q:{a}", "p*:{%}", "p*:{%41}", "p*:{a{}", "p*:master"} {
		_, ok := keys.NameOf(key)
		require.False(t, ok, key)
	}
}

func TestMessages(t *testing.T) {
	grant := wire.Handoff{Token: us, GrantedAt: us + 1, TTL: 3 * time.Second, Server: "0123456789ab"}
	block := grant
	block.First = us - 9
	contended := block
	contended.Contended = true
	for text, want := range map[string]any{
		hold:             wire.YieldRequest{},
		hold + " wanted": wire.Contended{},
		hold + " 1700000000000000 1700000000000001 3000 0123456789ab":                    grant,
		hold + " 1700000000000000 1700000000000001 3000 0123456789ab 1699999999999991 0": block,
		hold + " 1700000000000000 1700000000000001 3000 0123456789ab 1699999999999991 3": contended,
	} {
		about, got := wire.ReadMessage(text)
		require.Equal(t, want, got)
		require.Equal(t, hold, about)
	}
}

func TestTextsThatAreNoMessage(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "a space": " ", "no hold": " wanted", "unknown": "h other", "double space": "h  wanted",
		"trailing space": "h wanted ", "three": "h 1 2", "four": "h 1 2 3", "six": "h 1 2 3 s 1", "eight": "h 2 2 3 s 1 0 x",
		"no token": "h 0 1 3000 s", "negative token": "h -1 1 3000 s", "token too large": "h 9007199254740992 1 3000 s",
		"token as float": "h 1e3 1 3000 s", "no time": "h 1 1 0 s", "time for ever": "h 1 1 9223372036854775807 s",
		"negative clock": "h 1 -1 3000 s", "no server": "h 1 1 3000 ", "block after its token": "h 1 1 3000 s 2 0",
		"block without a token": "h 1 1 3000 s 0 0", "negative waiters": "h 2 1 3000 s 1 -1",
	} {
		about, message := wire.ReadMessage(text)
		require.Nil(t, message, name)
		require.Empty(t, about, name)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add("h")
	f.Add("h wanted")
	f.Add("h 1 1 3000 s")
	f.Add("h 2 1 3000 s 1 4")
	f.Fuzz(func(t *testing.T, text string) {
		about, message := wire.ReadMessage(text)
		if message == nil {
			return
		}
		require.Equal(t, strings.Split(text, " ")[0], about)
		require.NotEmpty(t, about)
		grant, ok := message.(wire.Handoff)
		if !ok {
			return
		}
		require.True(t, grant.Token > 0 && grant.Token <= fencing.MaxToken)
		require.Positive(t, grant.TTL)
		require.LessOrEqual(t, grant.First, grant.Token)
		ttl := grant.TTL.Milliseconds()
		again := fmt.Sprintf("%s %d %d %d %s", about, grant.Token, grant.GrantedAt, ttl, grant.Server)
		if grant.First > 0 {
			again += fmt.Sprintf(" %d %d", grant.First, map[bool]int{true: 1}[grant.Contended])
		}
		_, read := wire.ReadMessage(again)
		require.Equal(t, grant, read)
	})
}

// The operator and the reason arrive as they are, by each way.
func TestTheReasonOfABreak(t *testing.T) {
	for _, by := range []wire.Breaker{
		{Who: "ops", Why: "why"},
		{Why: "only why"},
		{Who: "a: b\nc\x00", Why: "7:x \xff broken "},
		{Who: "only who"},
		{Who: "ops", Why: "why", Now: true},
		{Why: "0:", Now: true},
		{Now: true},
	} {
		text := wire.Break{Hold: hold, Late: "60000", By: by}.Args(nil)[3]
		about, message := wire.ReadMessage(hold + " broken " + text)
		require.Equal(t, wire.BreakNotice{By: &by}, message)
		require.Equal(t, hold, about)
		require.Equal(t, &by, expect.NoError(wire.ReadAcquire(reply(3, 0, 0, us, text))).In(t).Broken)
		renewed := expect.NoError(wire.ReadRenew(reply(us, 1, 2, text, 3, 0), 3)).In(t)
		require.Equal(t, map[int]*wire.Breaker{1: &by}, renewed.Broken)
		require.Equal(t, []wire.Renewed{wire.RenewOK, wire.RenewGone, wire.RenewGone}, renewed.Renewed)
	}
	for _, text := range []string{"", "x", "x:y", "-1:y", "3:ab", ":ab"} {
		_, message := wire.ReadMessage(hold + " broken " + text)
		require.Nil(t, message, text)
		_, err := wire.ReadAcquire(reply(3, 0, 0, us, text))
		require.Error(t, err, text)
		_, err = wire.ReadRenew(reply(us, 0, 1, text), 1)
		require.Error(t, err, text)
	}
}

// The reply to a renewal names the leases that are not just renewed, and counts the others.
func TestAReplyToARenewalSaysWhatBecameOfEach(t *testing.T) {
	got := expect.NoError(wire.ReadRenew(reply(us, 1, 3, 2, 1, 0), 3)).In(t)
	want := []wire.Renewed{wire.RenewGone, wire.RenewOK, wire.RenewContended}
	require.Equal(t, wire.RenewReply{Micros: us, Renewed: want}, got)
	got = expect.NoError(wire.ReadRenew(reply(us), 3)).In(t)
	require.True(t, got.Stale)
	require.Equal(t, make([]wire.Renewed, 3), got.Renewed)
	for name, r := range map[string]rueidis.RedisResult{
		"count": reply(us, 2), "too many": reply(us, 4), "short": reply(us, 2, 3), "long": reply(us, 3, 1, 0),
		"no lease": reply(us, 2, 0, 0), "no such lease": reply(us, 2, 4, 0), "twice": reply(us, 1, 2, 0, 2, 0),
		"status": reply(us, 2, 1, 1), "empty": reply(),
	} {
		_, err := wire.ReadRenew(r, 3)
		require.Error(t, err, name)
	}
}

func TestDetails(t *testing.T) {
	d := wire.Details{Mode: fencing.Write, HandoffTTL: "3000", Route: wire.Published("c"), Meta: "meta of it"}
	owned, shared, converts, both, none, adopted := d, d, d, d, d, d
	owned.Owner = "A"
	shared.Block, shared.Route = 16, wire.Sharded("c")
	converts.Converts, converts.Mode, converts.Route = "B", fencing.Read, wire.Uncounted("c")
	both.Owner, both.Converts = "A", "B"
	none.Meta, adopted.Route = "", "@C"
	for text, d := range map[string]wire.Details{
		"w 3000 - pc meta of it":   d,
		"w 3000 A pc meta of it":   owned,
		"w 3000 +16 sc meta of it": shared,
		"r 3000 -^B bc meta of it": converts,
		"w 3000 A^B pc meta of it": both,
		"w 3000 - pc ":             none,
		"w 3000 - @C meta of it":   adopted,
	} {
		require.Equal(t, text, d.Text())
		parsed, ok := wire.ParseDetails(text)
		require.True(t, ok, text)
		require.Equal(t, d, parsed)
	}
	require.True(t, converts.Route.IsUncounted())
	require.False(t, shared.Route.IsUncounted() || d.Route.IsUncounted())
}

// The owner of the holder in the way is named, and not what a master has noted behind it.
func TestTheOwnerOfTheHolder(t *testing.T) {
	for owner, shown := range map[string]string{
		"-": other, "-^B": other, "-~": other, "-^B~": other, "+16": other, "+16~": other, "+16^B": other,
		"A": "A", "A^B": "A", "A~": "A", "A^B~": "A",
	} {
		r, err := wire.ReadAcquire(reply(2, 0, 5, us, other, 5, 1000, "w 3000 "+owner+" pchannel meta of it"))
		require.NoError(t, err)
		require.Equal(t, shown, r.Holder.Owner, owner)
		require.Equal(t, "meta of it", r.Holder.Meta)
		require.Equal(t, strings.HasPrefix(owner, "+"), r.Holder.Shared)
	}
}

func FuzzDetails(f *testing.F) {
	f.Add("w 3000 - pc meta of it")
	f.Add("r 3000 +16^B~ sc ")
	f.Add("w 0 A^B bc  x ")
	f.Fuzz(func(t *testing.T, text string) {
		d, ok := wire.ParseDetails(text)
		if !ok {
			return
		}
		again, ok := wire.ParseDetails(d.Text())
		require.True(t, ok)
		require.Equal(t, d, again)
		if d.Block == 0 {
			require.Equal(t, text, d.Text())
		}
	})
}

const (
	hold  = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	other = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
	us    = 1_700_000_000_000_000
)

// refusal is an error that a server replies.
type refusal string

// result makes the reply with these values: ints, texts, lists, refusals, nil, and floats.
func result(value any) rueidis.RedisResult {
	var message rueidis.RedisMessage
	if err := message.CacheUnmarshalView(encode(make([]byte, 7), value)); err != nil {
		panic(err)
	}
	return rueidis.NewResult(message, nil)
}

// reply makes the reply that is a list of these values.
func reply(values ...any) rueidis.RedisResult { return result(values) }

// line makes the reply that is a text with these values.
func line(values ...any) rueidis.RedisResult {
	text := fmt.Sprintln(values...)
	return result(text[:len(text)-1])
}

// encode writes a value in the form in which rueidis caches a message: a type, a length or a number, and the content.
func encode(to []byte, value any) []byte {
	head := func(kind byte, n int) { to = binary.BigEndian.AppendUint64(append(to, kind), uint64(n)) }
	switch v := value.(type) {
	case nil:
		head('_', 0)
	case int:
		head(':', v)
	case string:
		head('$', len(v))
		to = append(to, v...)
	case refusal:
		head('-', len(v))
		to = append(to, v...)
	case json.Number:
		n, err := v.Int64()
		if err == nil {
			return encode(to, int(n))
		}
		head(',', len(v))
		to = append(to, v...)
	case []any:
		head('*', len(v))
		for _, one := range v {
			to = encode(to, one)
		}
	}
	return to
}

// fromJSON makes the reply that a JSON text describes. A fuzzer changes such a text easily.
func fromJSON(text string) (r rueidis.RedisResult, value any, ok bool) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return r, nil, false
	}
	switch value.(type) {
	case bool, map[string]any:
		return r, nil, false
	}
	return result(value), value, true
}

// integer returns a number of a list, or of a line.
func integer(reply any, i int) (n int64, ok bool) {
	values, _ := reply.([]any)
	if line, is := reply.(string); is {
		for _, field := range strings.Split(line, " ") {
			values = append(values, json.Number(field))
		}
	}
	if i >= len(values) {
		return 0, false
	}
	number, _ := values[i].(json.Number)
	n, err := number.Int64()
	return n, err == nil
}

func TestTheseRepliesAreThoseOfAServer(t *testing.T) {
	list := expect.NoError(reply(1, "text", nil, []any{2}).ToArray()).In(t)
	require.EqualValues(t, 1, expect.NoError(list[0].ToInt64()).In(t))
	require.Equal(t, "text", expect.NoError(list[1].ToString()).In(t))
	require.True(t, list[2].IsNil())
	require.True(t, list[3].IsArray())
	require.EqualError(t, result(refusal("WRONGTYPE no")).Error(), "WRONGTYPE no")
	float, _, ok := fromJSON("[1.5]")
	require.True(t, ok)
	require.True(t, expect.NoError(float.ToArray()).In(t)[0].IsFloat64())
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
