package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/wire"
)

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
