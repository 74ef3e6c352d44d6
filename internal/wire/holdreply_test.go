package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/wire"
)

var readers = map[string]func(rueidis.RedisResult) (wire.HoldReply, error){
	"acquire": wire.ReadAcquire, "join": wire.ReadJoin, "raise": wire.ReadRaise, "yield": wire.ReadYield,
	"regain": wire.ReadRegain,
}

func TestRepliesAboutOneHold(t *testing.T) {
	const token = us + 7
	granted := wire.HoldReply{Status: wire.Granted, Token: token, Left: 40 * time.Second, Micros: us}
	block, joined := granted, granted
	block.First, joined.Count, joined.Mode = token-3, 2, fencing.Write
	is := func(s wire.Status) wire.HoldReply { return wire.HoldReply{Status: s, Micros: us} }
	behind := wire.HoldReply{Status: wire.Queued, Left: 5 * time.Millisecond, Micros: us, Holder: &wire.Holder{
		Owner: other, Hold: other, Mode: fencing.Write, Count: 1, Meta: "meta of it", Remaining: 5 * time.Millisecond,
		Held: time.Second,
	}}
	refused := behind
	refused.Status = wire.Refused
	abstains := is(wire.Abstains)
	abstains.Left = time.Second
	nearest := func(status wire.Status) wire.HoldReply { return wire.HoldReply{Status: status, Left: 1e6, Micros: us} }
	details := "w 3000 - pchannel meta of it"
	for name, tt := range map[string]struct {
		reply []any
		of    []string
		want  wire.HoldReply
	}{
		"granted":           {[]any{1, token, 40_000, us}, []string{"acquire", "raise", "yield", "regain"}, granted},
		"a block":           {[]any{1, token, 40_000, us, token - 3}, []string{"acquire", "yield"}, block},
		"joined":            {[]any{1, token, 40_000, us, 2, "w"}, []string{"join"}, joined},
		"behind a holder":   {[]any{0, 0, 5, us, other, 5, 1000, details}, []string{"acquire"}, behind},
		"refused":           {[]any{2, 0, 5, us, other, 5, 1000, details}, []string{"acquire"}, refused},
		"behind no holder":  {[]any{0, 0, 1, us, "", 0, 0, ""}, []string{"acquire"}, nearest(wire.Queued)},
		"of later versions": {[]any{2, 0, 1, us, other, 5, 1, "x 1"}, []string{"acquire"}, nearest(wire.Refused)},
		"yielded":           {[]any{0, 0, 1, us}, []string{"yield"}, nearest(wire.Queued)},
		"yield, unknown":    {[]any{2, 0, 0, us}, []string{"yield"}, is(wire.Absent)},
		"no standing hold":  {[]any{0, 0, 0, us}, []string{"join", "regain"}, is(wire.Absent)},
		"owner reads":       {[]any{2, 0, 0, us}, []string{"join"}, is(wire.OnlyReads)},
		"not raised":        {[]any{0, 0, 0, us}, []string{"raise"}, is(wire.Refused)},
		"too far ahead":     {[]any{6, 0, 0, us}, []string{"raise"}, is(wire.ClockAhead)},
		"tombstone":         {[]any{3, 0, 0, us}, []string{"acquire", "join"}, is(wire.Tombstoned)},
		"abstains":          {[]any{4, 0, 1000, us}, []string{"acquire", "join", "raise", "yield", "regain"}, abstains},
		"other marker":      {[]any{5, 0, 0, us}, []string{"acquire", "join", "raise", "yield", "regain"}, is(wire.Changed)},
		"second upgrade":    {[]any{7, 0, 0, us}, []string{"acquire"}, is(wire.Rival)},
	} {
		for script, read := range readers {
			t.Run(name+" "+script, func(t *testing.T) {
				for _, r := range []rueidis.RedisResult{reply(tt.reply...), line(tt.reply...)} {
					got, err := read(r)
					if !slices.Contains(tt.of, script) {
						require.True(t, err != nil || got.Status != wire.Granted, "a grant that this script does not report")
						continue
					}
					require.NoError(t, err)
					require.Equal(t, tt.want, got)
				}
			})
		}
	}
}

// Only the times that are left of a quarantine, and of another holder, may be of any length.
func TestTimesOfAServerWhoseClockWasSet(t *testing.T) {
	require.Greater(t, expect.NoError(wire.ReadAcquire(reply(4, 0, 1<<62, us))).In(t).Left, 100*365*24*time.Hour)
	got := expect.NoError(wire.ReadAcquire(reply(2, 0, 1, us, other, -5, -7, "r 3000 - pc "))).In(t)
	require.Zero(t, got.Holder.Remaining+got.Holder.Held)
}

// A hold behind a write hold is told in parts of fixed widths.
func TestTheLineBehindAWriteHold(t *testing.T) {
	at := func(us, renewed, since int, ttl, details string) string {
		return fmt.Sprintf("%016d%013d%s%8s%013d%s", us, renewed, other, ttl, since, details)
	}
	const ms = us / 1000
	for digit, status := range map[string]wire.Status{"0": wire.Queued, "2": wire.Refused} {
		got := expect.NoError(wire.ReadAcquire(line(digit + at(us, ms-3, ms-1000, "10000", "w 3000 - pc a b")))).In(t)
		require.Equal(t, wire.HoldReply{
			Status: status, Left: 9997 * time.Millisecond, Micros: us, Holder: &wire.Holder{
				Owner: other, Hold: other, Meta: "a b", Mode: fencing.Write, Count: 1,
				Remaining: 9997 * time.Millisecond, Held: time.Second,
			},
		}, got)
	}
	got := expect.NoError(wire.ReadAcquire(line("0" + at(us, ms+5, ms+7, "10000", "")))).In(t)
	require.Equal(t, wire.HoldReply{Status: wire.Queued, Left: 10_005 * time.Millisecond, Micros: us}, got,
		"an operator has deleted the details")
	got = expect.NoError(wire.ReadAcquire(line("0" + at(us, ms, ms+7, "10000", "w 3000 - pc ")))).In(t)
	require.Zero(t, got.Holder.Held, "the clock was set back")
	for _, wrong := range []string{
		"1" + at(us, ms, ms, "10000", "w 3000 - pc "), "0" + at(us, ms-10_001, ms, "10000", "w 3000 - pc "),
		"0" + at(us, ms, ms, "1x000", "w 3000 - pc "), "0" + at(us, ms, ms, "-1000", "w 3000 - pc "),
		"0" + at(us, ms, ms, "", "w 3000 - pc "), "0" + at(us, ms, ms, "10000", "")[:75],
	} {
		_, err := wire.ReadAcquire(line(wrong))
		require.ErrorContains(t, err, "malformed reply", wrong)
	}
}

// The server's time alone is a grant with that token, and 1 alone a release. Other numbers are nothing.
func TestRepliesOfOneNumber(t *testing.T) {
	got, err := wire.ReadAcquire(result(us))
	require.NoError(t, err)
	require.Equal(t, wire.Granted, got.Status)
	require.EqualValues(t, us, got.Token)
	require.EqualValues(t, us, got.Micros)
	require.Greater(t, got.Left, 24*time.Hour)
	for _, n := range []int{-us, -1, 0, 1, 7, int(fencing.MaxToken) + 1} {
		_, err := wire.ReadAcquire(result(n))
		require.Error(t, err, n)
	}
	for of, want := range map[string]fencing.Token{"": 0, " 1700000000000003": 1700000000000003} {
		got, err := wire.ReadAcquire(line(fmt.Sprintf("%d %d%s", us+7, us, of)))
		require.NoError(t, err)
		require.Equal(t, wire.HoldReply{Status: wire.Granted, Token: us + 7, First: want, Left: got.Left, Micros: us}, got)
		require.Greater(t, got.Left, 24*time.Hour)
	}
	for _, text := range []string{
		"1700000000000007 ", "1700000000000007 x", "0000000000000000 1", "1700000000000007 1 0", "1700000000000007 1 2 3",
		"9700000000000007 1", "1700000000000007 1 1700000000000008", "17000000000000070 1", "-700000000000007 1",
	} {
		_, err := wire.ReadAcquire(line(text))
		require.Error(t, err, text)
	}
	released, err := wire.ReadRelease(result(1))
	require.NoError(t, err)
	require.Equal(t, wire.ReleaseReply{Was: wire.WasGranted}, released)
	for _, n := range []int{-1, 0, 2, us} {
		_, err := wire.ReadRelease(result(n))
		require.Error(t, err, n)
	}
}

func TestMalformedRepliesAboutOneHold(t *testing.T) {
	for name, r := range map[string]rueidis.RedisResult{
		"no list":                  result(1),
		"empty":                    reply(),
		"short":                    reply(1, us, 40_000),
		"long":                     reply(1, us, 40_000, us, us-1, "w", 0),
		"unknown status":           reply(8, us, 40_000, us),
		"negative status":          reply(-1, us, 40_000, us),
		"status as text":           reply("1", us, 40_000, us),
		"grant without a token":    reply(1, 0, 40_000, us),
		"grant without time":       reply(1, us, 0, us),
		"grant with negative time": reply(1, us, -1, us),
		"grant for ever":           reply(1, us, 1<<62, us),
		"token as text":            reply(1, "7", 40_000, us),
		"nil for the token":        reply(1, nil, 40_000, us),
		"negative clock":           reply(1, us, 40_000, -us),
		"block after its token":    reply(1, us, 40_000, us, us+1),
		"block without a token":    reply(1, us, 40_000, us, 0),
		"joined in no mode":        reply(1, us, 40_000, us, 1, "x"),
		"joined by no hold":        reply(1, us, 40_000, us, 0, "r"),
		"holder without times":     reply(2, 0, 5, us, other, 5, 1000),
		"holder of numbers":        reply(2, 0, 5, us, 1, 2, 3, 4),
		"nested":                   reply([]any{1, us, 40_000, us}),
		"empty line":               line(),
		"line of a word":           line("OK"),
		"short line":               line(1, us, 40_000),
		"long line":                line(1, us, 40_000, us, us-1, "w", 0),
		"line that goes on":        line(1, us, 40_000, us, ""),
		"line with two spaces":     line(1, us, "", 40_000, us),
		"line that begins late":    line("", 1, us, 40_000, us),
		"line with a fraction":     line(1, us, 40_000.5, us),
		"line without an end":      line(1, us, strings.Repeat("9", 30), us),
		"line with a new line":     line(1, us, 40_000, "17\n"),
		"holder of a short line":   line(2, 0, 5, us, other, 5, 1000),
		"holder without an id":     line(2, 0, 5, us, 5, 1000, "w 3000 - pc "),
	} {
		for script, read := range readers {
			got, err := read(r)
			require.Error(t, err, "%s: %s", script, name)
			require.Zero(t, got, "%s: %s", script, name)
		}
	}
	for script, other := range map[string]int{"acquire": 6, "raise": 3, "yield": 3} {
		_, err := readers[script](reply(other, 0, 5, us))
		require.Error(t, err, "%s: a status of other scripts", script)
	}
}

func TestErrorsInPlaceOfAReply(t *testing.T) {
	lost := errors.New("connection lost")
	for script, read := range readers {
		_, err := read(rueidis.NewErrorResult(lost))
		require.Equal(t, lost, err, script)
		_, err = read(result(refusal("WRONGTYPE no")))
		_, ok := rueidis.IsRedisErr(err)
		require.True(t, ok, "%s: the server's refusal is kept for the transport to classify: %v", script, err)
		for _, counter := range []int{-1, int(fencing.MaxToken) + 1} {
			_, err = read(reply(1, counter, 40_000, us))
			require.ErrorIs(t, err, wire.ErrCounter, script)
		}
		for _, counter := range []string{"9223372036854775808", "-9223372036854775809", strings.Repeat("9", 30)} {
			_, err = read(line(1, counter, 40_000, us)) // a line has numbers of any length
			require.ErrorIs(t, err, wire.ErrCounter, script)
		}
	}
}

func FuzzHoldReply(f *testing.F) {
	for _, text := range []string{
		`[1,1700000000000007,40000,1700000000000000]`,
		`[1,1700000000000007,40000,1700000000000000,1700000000000004]`,
		`[1,1700000000000007,40000,1700000000000000,2,"w"]`,
		`[0,0,5,1700000000000000,"01ARZ3NDEKTSV4RRFFQ69G5FAV",5,1000,"w 3000 - pchannel meta"]`,
		`"0 0 5 1700000000000000 01ARZ3NDEKTSV4RRFFQ69G5FAV 5 1000 w 3000 - pchannel meta"`,
		`"01700000000000000170000000000001ARZ3NDEKTSV4RRFFQ69G5FAV   100001700000000000w 3000 - pchannel meta"`,
		`1700000000000000`, `"1700000000000007 1700000000000000"`, `"1 1700000000000007 40000 1700000000000000"`,
		`"1 1 1 1 "`, `""`, `"1  1 1 1"`,
		`[4,0,1000,1700000000000000]`, `[9,1,1,1]`, `["1",1,1,1]`, `[1,0,1,1]`, `[1,1,9223372036854775807,1]`, `null`, `[[]]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, value, ok := fromJSON(text)
		if !ok {
			return
		}
		for script, read := range readers {
			got, err := read(r)
			if err != nil {
				require.Zero(t, got, script)
				continue
			}
			require.NotZero(t, got.Status, script)
			require.GreaterOrEqual(t, got.Left, time.Duration(0), script)
			full := fields(value)
			status, isNumber := integer(full, 0)
			require.True(t, isNumber, script)
			require.Equal(t, status == 1, got.Status == wire.Granted, script)
			if got.Status == wire.Granted {
				token, _ := integer(full, 1)
				left, _ := integer(full, 2)
				require.EqualValues(t, token, got.Token, script)
				require.True(t, token >= 1 && token <= int64(fencing.MaxToken), script)
				require.Equal(t, time.Duration(left)*time.Millisecond, got.Left, script)
				require.Positive(t, got.Left, script)
				require.LessOrEqual(t, got.First, got.Token, script)
			}
		}
	})
}

// fields returns a reply that says less than a status and what belongs to it with what it stands for.
func fields(value any) any {
	const asAsked = math.MaxInt64 / 2 / int64(time.Millisecond)
	switch reply := value.(type) {
	case json.Number: // the server's time, which is the token
		return []any{json.Number("1"), reply, json.Number(fmt.Sprint(asAsked)), reply}
	case string:
		if len(reply) > 16 && reply[16] == ' ' && reply[1] != ' ' { // a token, and the time
			token, rest, _ := strings.Cut(reply, " ")
			return fmt.Sprintf("1 %s %d %s", token, asAsked, rest)
		}
		if len(reply) > 76 && reply[1] != ' ' { // parts of fixed widths
			return reply[:1]
		}
	}
	return value
}

func TestRefreshReply(t *testing.T) {
	got := expect.NoError(wire.ReadRefresh(reply(us, 20, 0, 0, 0, 0, 1, us+1, 3000, 2, 0, 0), 3)).In(t)
	require.Equal(t, wire.RefreshReply{
		Micros: us, Left: 20 * time.Millisecond, Waiters: []wire.RefreshedWaiter{
			{Status: wire.Queued}, {Status: wire.Granted, Token: us + 1, Left: 3 * time.Second}, {Status: wire.Absent},
		},
	}, got)
	for sum, want := range []wire.RefreshReply{
		{More: wire.NoMore},
		{More: wire.MoreAdmits},
		{More: wire.MoreReads},
		{},
	} {
		got, err := wire.ReadRefresh(reply(us, 0, sum), 0)
		require.Equal(t, sum == 3, err != nil, "%d", sum)
		want.Micros = got.Micros
		require.Equal(t, want, got, "%d", sum)
	}
	for name, r := range map[string]rueidis.RedisResult{
		"short": reply(us, 0, 0, 1, us), "long": reply(us, 0, 0, 0, 0, 0, 0), "unknown": reply(us, 0, 0, 3, 0, 0),
		"grant without a token": reply(us, 0, 0, 1, 0, 3000), "grant without time": reply(us, 0, 0, 1, us, 0),
		"more": reply(us, 0, 8, 0, 0, 0), "negative more": reply(us, 0, -1, 0, 0, 0), "wake": reply(us, -1, 0, 0, 0, 0),
		"text": reply(us, 0, 0, "1", us, 3000), "refused": result(refusal("NOPERM no")),
	} {
		got, err := wire.ReadRefresh(r, 1)
		require.Error(t, err, name)
		require.Zero(t, got, name)
	}
	_, err := wire.ReadRefresh(reply(us, 0, 0, 1, int(fencing.MaxToken)+1, 3000), 1)
	require.ErrorIs(t, err, wire.ErrCounter)
}

func TestInspectReply(t *testing.T) {
	holder := []any{hold, hold, "w", "channel", 2, 1000, -5, us, "meta of it", 1}
	waiter := []any{other, "owner", "r", "channel", 7, "its meta", "q", 3, "of a later version"}
	broken := []any{other, "owner", "r", "channel", 1, 0, 0, us - 1, "", 0, 1}
	got := expect.NoError(wire.ReadInspect(reply(us, "w", us+1, []any{holder, broken}, []any{waiter}))).In(t)
	require.Equal(t, wire.InspectReply{
		Micros: us, Token: us + 1,
		Holders: []wire.Holder{{
			Hold: hold, Owner: hold, Mode: fencing.Write, Count: 2, Remaining: time.Second, Meta: "meta of it", Shared: true,
			Token: us,
		}, {
			Hold: other, Owner: "owner", Mode: fencing.Read, Count: 1, Token: us - 1, Broken: true,
		}},
		Waiters: []wire.Waiter{{
			Hold: other, Owner: "owner", Mode: fencing.Read, Waited: 7 * time.Millisecond, Meta: "its meta",
		}},
	}, got)
	got = expect.NoError(wire.ReadInspect(reply(us, "", 0, []any{[]any{1, nil}, 7}, []any{[]any{other}}))).In(t)
	require.Equal(t, wire.InspectReply{
		Micros: us, Holders: []wire.Holder{{}, {}}, Waiters: []wire.Waiter{{Hold: other}},
	}, got, "what can be read of foreign rows")
	for name, r := range map[string]rueidis.RedisResult{
		"short": reply(us, "", 0, []any{}), "long": reply(us, "", 0, []any{}, []any{}, 1), "no rows": reply(us, "", 0, 1, 2),
		"counter": reply(us, "", "x", []any{}, []any{}), "refused": result(refusal("WRONGTYPE no")),
	} {
		got, err := wire.ReadInspect(r)
		require.Error(t, err, name)
		require.Zero(t, got, name)
	}
}

func FuzzListReplies(f *testing.F) {
	for _, text := range []string{
		`[1700000000000000,1,2,0,3]`, `[1700000000000000,20,6,1,1700000000000001,3000]`, `[1,1700000000000000,2]`,
		`[1700000000000000,"w",7,[["h","o","w","c",1,5,6,7,"m",0]],[["h","o","r","c",5,"m","q",1]]]`, `[0,0,0]`, `[null]`,
		`[1,2,3,0]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, value, ok := fromJSON(text)
		if !ok {
			return
		}
		list, _ := value.([]any)
		if got, err := wire.ReadRenew(r, 3); err == nil && len(list) > 1 {
			renewed, _ := integer(value, 1)
			for i := 2; i < len(list); i += 2 {
				at, _ := integer(value, i)
				status, _ := integer(value, i+1)
				renewed += int64(status / 2)
				require.Equal(t, status == 2, got.Renewed[at-1].OK())
			}
			ok := slices.DeleteFunc(got.Renewed, func(r wire.Renewed) bool { return !r.OK() })
			require.Len(t, ok, int(renewed))
		}
		if got, err := wire.ReadRefresh(r, max(len(list)-3, 0)/3); err == nil {
			for i, waiter := range got.Waiters {
				status, _ := integer(value, 3+3*i)
				require.Equal(t, status == 1, waiter.Status == wire.Granted)
				require.True(t, waiter.Status != wire.Granted || waiter.Token > 0 && waiter.Left > 0)
			}
		}
		if got, err := wire.ReadRelease(r); err == nil {
			status, _ := integer(value, 0)
			require.Equal(t, status == 1, got.Was == wire.WasGranted)
		}
		if got, err := wire.ReadInspect(r); err == nil {
			for _, h := range got.Holders {
				require.GreaterOrEqual(t, min(h.Remaining, h.Held), time.Duration(0))
			}
		}
	})
}
