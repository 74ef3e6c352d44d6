package wire_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
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
	got, err := wire.ReadAcquire(reply(4, 0, 1<<62, us))
	require.NoError(t, err)
	require.Greater(t, got.Left, 100*365*24*time.Hour)
	got, err = wire.ReadAcquire(reply(2, 0, 1, us, other, -5, -7, "r 3000 - pc "))
	require.NoError(t, err)
	require.Zero(t, got.Holder.Remaining+got.Holder.Held)
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
		`"1 1700000000000007 40000 1700000000000000"`, `"1 1 1 1 "`, `""`, `"1  1 1 1"`,
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
			status, isNumber := integer(value, 0)
			require.True(t, isNumber, script)
			require.Equal(t, status == 1, got.Status == wire.Granted, script)
			if got.Status == wire.Granted {
				token, _ := integer(value, 1)
				left, _ := integer(value, 2)
				require.EqualValues(t, token, got.Token, script)
				require.True(t, token >= 1 && token <= int64(fencing.MaxToken), script)
				require.Equal(t, time.Duration(left)*time.Millisecond, got.Left, script)
				require.Positive(t, got.Left, script)
				require.LessOrEqual(t, got.First, got.Token, script)
			}
		}
	})
}
