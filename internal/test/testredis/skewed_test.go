//go:build unix

package testredis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestSkewedServerHasTheClockThatItIsGiven(t *testing.T) {
	server := testredis.StartSkewed(t)
	ahead := func() time.Duration {
		reply, err := server.Command("EVAL", "return tonumber(redis.call('TIME')[1])", "0")
		require.NoError(t, err)
		return time.Until(time.Unix(reply.(int64), 0))
	}
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		server.Skew(skew)
		require.InDelta(t, skew, ahead(), float64(20*time.Second))
	}
	server.Skew(time.Hour)
	server.Restart()
	require.InDelta(t, time.Hour, ahead(), float64(20*time.Second))
}

func TestSkewedServerHasAClockThatStandsStill(t *testing.T) {
	server := testredis.StartSkewed(t)
	for _, at := range []time.Time{time.UnixMicro(1_800_000_000_000_001), time.UnixMicro(1_700_000_000_999_999)} {
		server.Stand(at)
		for range 3 {
			reply, err := server.Command("TIME")
			require.NoError(t, err)
			us := fmt.Sprintf("%06d", at.Nanosecond()/1000)
			require.Equal(t, []any{fmt.Sprint(at.Unix()), strings.TrimLeft(us[:5], "0") + us[5:]}, reply)
		}
	}
}
