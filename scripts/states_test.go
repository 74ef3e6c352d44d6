package scripts_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// onStandingClocks runs a test on the server binaries of testredis.Binaries, with a clock that only pass moves: the
// same calls leave the same keys.
func onStandingClocks(t *testing.T, test func(e *env)) {
	t.Helper()
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			server := testredis.StartSkewedBinary(t, binary)
			e := &env{t: t, client: server.Client(t), server: server.Server, skewed: server}
			e.stand(time.UnixMicro(1_800_000_012_345_678))
			e.loadAll()
			test(e)
		})
	}
}

// stand sets a clock of onStandingClocks.
func (e *env) stand(at time.Time) {
	e.at = at
	e.skewed.Stand(at)
}

// attempt is try with a reply in fields.
func (e *env) attempt(c call) ([]any, error) {
	reply, err := e.try(c)
	if fields, ok := scriptfuzz.Fields(reply); ok {
		return fields, err
	}
	return []any{reply}, err
}

// standing is what a state leaves: tokens by hold.
type standing map[string]int64

func (s standing) of(hold string) int64 {
	if token, known := s[hold]; known {
		return token
	}
	return 5
}

// takes is a call that has to be granted.
func (s standing) takes(e *env, hold string, c call) {
	e.t.Helper()
	reply := e.run(c)
	require.EqualValues(e.t, 1, reply[0], "%s %q", c.script, c.args)
	s[hold] = reply[1].(int64)
}

// states are locks with all fields and records that there may be.
var states = map[string]func(e *env, s standing){
	"released": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01").by("a")))
		e.run(release("01", 0))
	},
	"a write that is awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01")))
		e.run(acquire(writer("02").listening(deaf)))
		e.run(acquire(reader("03")))
	},
	"a long write that was renewed, beside a tombstone": func(e *env, s standing) {
		of := writer("01")
		of.meta = strings.Repeat("long", 30)
		s.takes(e, "01", acquire(of))
		e.pass(time.Second)
		e.run(renew("01", ttl, s["01"]))
		e.run(release("07", ttl))
	},
	"a named write that is joined and awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01").by("a")))
		s.takes(e, "02", join(reader("02").by("a").lasting(2*ttl)))
		e.run(acquire(writer("03")))
	},
	"a shared write that is awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01").shared(9)))
		e.run(acquire(writer("02").shared(4)))
	},
	"readers that are awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(reader("01").shared(3)))
		s.takes(e, "02", acquire(reader("02").by("a")))
		e.run(acquire(writer("03")))
	},
	"an upgrade that waits": func(e *env, s standing) {
		s.takes(e, "01", acquire(reader("01")))
		s.takes(e, "02", acquire(reader("02")))
		e.run(acquire(writer("03").converting("01")))
	},
	"a downgrade that is awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01")))
		e.run(acquire(writer("03")))
		s.takes(e, "02", acquire(reader("02").converting("01")))
	},
	"a broken write that is awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01")))
		e.run(acquire(writer("02")))
		e.run(breaks("01"))
	},
	"a write that has ended": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01").by("a")))
		e.run(endHold("01", 0, ttl, ttl))
	},
	"a write that is adopted": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01")))
		e.run(mark("01", s["01"]))
		s.takes(e, "02", adopt(writer("02"), "01", s["01"]))
	},
	"a waiter that was passed over": func(e *env, s standing) {
		e.run(acquire(writer("09")))
		e.run(acquire(writer("02").listening(deaf)))
		e.run(acquire(writer("01")))
		e.run(release("09", 0))
		s["01"] = e.run(acquire(writer("01")))[1].(int64)
	},
	"an expired write that is awaited": func(e *env, s standing) {
		s.takes(e, "01", acquire(writer("01").by("a")))
		e.run(acquire(writer("02").waiting(4 * ttl)))
		e.pass(2 * ttl * time.Millisecond)
	},
}

// requests are calls of each script, in a state.
func requests(s standing) map[string]call {
	own := s.of("01")
	all := map[string]call{
		"acquire": acquire(writer("11")), "a read": acquire(reader("11")), "a named write": acquire(writer("11").by("a")),
		"a shared write": acquire(writer("11").shared(9)), "one attempt": tryAcquire(writer("11")),
		"a named read": tryAcquire(reader("11").by("a")), "an older one": acquire(writer("001")),
		"upgrade": acquire(writer("11").converting("01")), "downgrade": acquire(reader("11").converting("01")),
		"adopt": adopt(writer("11"), "01", own), "join": join(reader("11").by("a")),
		"acquire again": acquire(writer("01")), "wait on": acquire(writer("03")),
		"regain": regain(writer("01"), own-10, 0), "regain of another": regain(writer("06"), own, 0),
		"raise": raise("01", own+1000), "raise another": raise("02", s.of("02")+1000),
		"yield": yield("01", own), "give back": on("n", scripts.Yield, ulid("01"), own, 1),
		"renew": renew("01", ttl, own), "renew another": renew("02", 2*ttl, s.of("02")), "mark": mark("01", own),
		"refresh": refresh("02", "03"), "refresh nobody": refresh(), "inspect": inspect(),
		"break": breaks("01"), "break at once": breaksNow("01"), "break another": breaks("09"),
		"break a waiter": breaks("03"),
		"release":        release("01", 0), "release with a tombstone": releaseAll("01", ttl),
		"release another": release("02", 0),
		"release none":    release("09", ttl), "release with a minimum": endHold("01", 0, ttl, ttl),
		"release a crowd":    on("n", scripts.Release, ulid("01"), 0, 0, ulid("02"), ulid("03")),
		"release of a group": group([]pair{{"n", "01"}}, []pair{{"n", "11"}}, ""),
		"acquire of a group": group(nil, []pair{{"n", "11"}}, ""), "a set": set("none", pair{"n", "11"}),
	}
	return all
}

// inEachState calls a test for each state and each request.
func (e *env) inEachState(test func(what string, build func() standing, c call)) {
	e.t.Helper()
	began := e.at
	for _, name := range slices.Sorted(maps.Keys(states)) {
		build := func() standing {
			e.flushAll()
			e.stand(began)
			s := standing{}
			states[name](e, s)
			return s
		}
		all := requests(build())
		for _, request := range slices.Sorted(maps.Keys(all)) {
			test(name+", "+request, build, all[request])
		}
	}
}
