package wire_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/wire"
)

func TestBreakReply(t *testing.T) {
	for r, want := range map[[4]int]wire.BreakReply{
		{0, 0, us, 0}:  {Broken: wire.BreakGone, Micros: us},
		{1, 10, us, 1}: {Broken: wire.BreakStands, Left: 10 * time.Millisecond, Micros: us, More: wire.MoreAdmits},
		{2, 0, us, 2}:  {Broken: wire.BreakGranted, Micros: us, More: wire.MoreReads},
		{3, 0, us, 0}:  {Broken: wire.BreakWaiting, Micros: us},
	} {
		got, err := wire.ReadBreak(reply(r[0], r[1], r[2], r[3]))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for name, r := range map[string]rueidis.RedisResult{
		"short": reply(1, 0, us), "long": reply(1, 0, us, 0, 0), "unknown": reply(4, 0, us, 0), "text": reply("1", 0, us, 0),
		"negative": reply(-1, 0, us, 0), "left": reply(1, -1, us, 0), "refused": result(refusal("NOPERM no")),
	} {
		got, err := wire.ReadBreak(r)
		require.Error(t, err, name)
		require.Zero(t, got, name)
	}
}

// The operator and the reason arrive as they are, by each way.
func TestTheReasonOfABreak(t *testing.T) {
	for _, by := range []wire.Breaker{
		{"ops", "why"}, {"", "only why"}, {"a: b\nc\x00", "7:x \xff broken "}, {"only who", ""},
	} {
		text := wire.Break{Hold: hold, Late: "60000", By: by}.Args(nil)[3]
		require.Equal(t, wire.BreakNotice{Hold: hold, By: &by}, wire.ReadMessage(hold+" broken "+text))
		got, err := wire.ReadAcquire(reply(3, 0, 0, us, text))
		require.NoError(t, err)
		require.Equal(t, &by, got.Broken)
		renewed, err := wire.ReadRenew(reply(us, 1, text, 0), 3)
		require.NoError(t, err)
		require.Equal(t, map[int]*wire.Breaker{1: &by}, renewed.Broken)
		require.Equal(t, []wire.Renewed{wire.RenewOK, wire.RenewGone, wire.RenewGone}, renewed.Renewed)
	}
	for _, text := range []string{"", "x", "x:y", "-1:y", "3:ab", ":ab"} {
		require.Nil(t, wire.ReadMessage(hold+" broken "+text), text)
		_, err := wire.ReadAcquire(reply(3, 0, 0, us, text))
		require.Error(t, err, text)
		_, err = wire.ReadRenew(reply(us, text), 1)
		require.Error(t, err, text)
	}
}
