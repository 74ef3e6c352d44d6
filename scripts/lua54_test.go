package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// The scripts keep to the contract also where Lua 5.4 runs them. internal/test/scriptfuzz plays random sequences there.
func TestSequencesInLua54(t *testing.T) {
	inLua54(t, func(e *env) {
		for name, steps := range sequences {
			e.flushAll()
			e.newMarker()
			tokens := map[string]int64{}
			for i, s := range steps {
				e.pass(s.pause)
				e.twice(fmt.Sprintf("%s, step %d", name, i), s, tokens)
			}
			e.pass(2 * ttl * time.Millisecond)
			e.run(refresh())
			e.onlyTokensStay()
		}
	})
}

func TestMarkersInLua54(t *testing.T) {
	inLua54(t, func(e *env) {
		marker := func(args ...any) call { return call{scripts.Marker, []string{markerKey}, texts(args)} }
		for _, purpose := range []string{"look", "join", "look", "join", "single"} {
			us := e.now().UnixMicro()
			reply := e.run(marker(purpose, "2", "rules", "01JSET", "1", "a b c", 10_000, "", ""))
			require.GreaterOrEqual(e.t, reply[0], us, purpose)
		}
		require.Equal(e.t, "01JSET", e.field(markerKey, "set"))
	})
}

func inLua54(t *testing.T, test func(e *env)) {
	t.Helper()
	server := testredis.Start(t)
	test(&env{t: t, client: server.Client(t), server: server, lua: testredis.StartLua54(t, server)})
}
