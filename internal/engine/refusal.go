package engine

import (
	"strings"

	"github.com/redis/rueidis"
)

// isConflict reports whether a key of the lock holds something that is not ours.
func isConflict(err error) bool {
	return err != nil && strings.Contains(err.Error(), "WRONGTYPE")
}

// answered reports whether the server itself refused, so that the request is known not to have run. BUSY and UNKILLABLE are answers too.
func answered(err error) bool {
	_, ok := rueidis.IsRedisErr(err)
	return ok
}

// permanent refusals do not pass by themselves: asking again would only hide them.
var permanent = []string{"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "ERR"}

func isPermanent(err error, mode rueidis.ClientMode) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	if !ok {
		return strings.Contains(err.Error(), "NOAUTH") || strings.Contains(err.Error(), "WRONGPASS")
	}
	text := redisErr.Error()
	for _, code := range permanent {
		if strings.HasPrefix(text, code) {
			return true
		}
	}
	// Behind Sentinel or in a Cluster a read-only answer is a failover that the client has yet to follow.
	return strings.HasPrefix(text, "READONLY") && mode == rueidis.ClientModeStandalone
}
