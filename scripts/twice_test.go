package scripts_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// step is one request of a sequence, what the first run of it must answer, and for how long nothing happens before.
type step struct {
	pause  time.Duration
	call   func(tokens map[string]int64) call
	status int64
	second int64 // the status of the second run, where it differs
}

const same = -1

func is(status int64, c call) step {
	return step{call: func(map[string]int64) call { return c }, status: status, second: same}
}

func ends(status int64, c call) step {
	s := is(status, c)
	s.second = 0
	return s
}

// renews is a renewal with the token that the hold was last told.
func renews(status int64, hold string) step { return renewsTo(status, hold, ttl) }

func renewsTo(status int64, hold string, ttl int) step {
	return step{call: func(tokens map[string]int64) call { return renew(hold, ttl, tokens[ulid(hold)]) }, status: status, second: same}
}

func after(d time.Duration, s step) step {
	s.pause = d * time.Millisecond
	return s
}

func quorum(s step) step {
	single := s.call
	s.call = func(tokens map[string]int64) call { return vote{proposal: 100, seen: setID}.of(single(tokens)) }
	return s
}

var deaf = "p" + channel // nobody listens there

// sequences take a lock through its whole life.
var sequences = map[string][]step{
	"write, hand-off, gone": {
		is(1, acquire(writer("01"))),
		is(2, tryAcquire(writer("02"))),
		is(2, tryAcquire(reader("02"))),
		is(0, acquire(writer("03"))),
		is(0, acquire(reader("04"))),
		renews(1, "01"),
		renews(0, "03"),
		is(0, refresh("03", "04")),
		ends(1, release("01", 0)),
		is(1, refresh("03")),
		renews(1, "03"),
		renews(0, "01"),
		ends(1, release("03", 0)),
		is(1, acquire(reader("04"))),
		renews(1, "04"),
		ends(1, release("04", 0)),
		is(0, release("04", 0)),
		renews(0, "04"),
		is(2, refresh("04")),
	},
	"readers and a writer between them": {
		is(1, acquire(reader("01"))),
		is(1, acquire(reader("02").lasting(2*ttl))),
		is(0, acquire(writer("03"))),
		is(0, acquire(reader("04"))),
		is(2, tryAcquire(reader("05"))),
		ends(1, release("02", 0)),
		ends(2, release("03", 0)),
		is(1, refresh("04")),
		renews(1, "04"),
		is(0, acquire(writer("06"))),
		ends(1, release("04", 0)),
		ends(1, release("01", 0)),
		is(1, refresh("06")),
		ends(1, release("06", 0)),
	},
	"expiry": {
		is(1, acquire(writer("01"))),
		is(0, acquire(writer("02").waiting(2*ttl))),
		is(0, acquire(writer("03"))),
		after(ttl, is(1, refresh("02"))),
		renews(0, "01"),
		is(0, release("01", 0)),
		after(claim, renews(1, "02")),
		is(2, refresh("03")),
		after(2*ttl, renews(0, "02")),
		is(1, acquire(reader("04"))),
		after(2*ttl, is(1, acquire(writer("05")))),
		ends(1, release("05", 0)),
	},
	"a renewal sets what it is asked for": {
		is(1, acquire(writer("01").lasting(3*ttl))),
		renewsTo(1, "01", claim),
		after(2*claim, renews(0, "01")),
		is(1, acquire(reader("02").lasting(3*ttl))),
		renewsTo(1, "02", claim),
		after(2*claim, renews(0, "02")),
		is(1, acquire(writer("03"))),
		ends(1, release("03", 0)),
	},
	"tombstones": {
		is(0, release("01", ttl)),
		is(3, acquire(writer("01"))),
		is(3, join(writer("01").by("a"))),
		is(1, acquire(writer("02"))),
		ends(1, releaseAll("02", ttl)),
		is(3, acquire(writer("02"))),
		is(1, acquire(reader("03"))),
		is(0, acquire(writer("04"))),
		ends(2, releaseAll("04", ttl)),
		is(3, acquire(writer("04"))),
		after(2*ttl, is(1, acquire(writer("01")))),
		ends(1, release("01", 0)),
	},
	"nesting": {
		is(0, join(writer("01").by("a"))),
		is(1, acquire(writer("02").by("a"))),
		is(1, join(writer("03").by("a").lasting(2*ttl))),
		is(1, join(reader("04").by("a"))),
		is(0, join(reader("05").by("b"))),
		is(0, acquire(reader("06").by("b"))),
		ends(1, release("02", 0)),
		renews(1, "03"),
		ends(1, release("03", 0)),
		ends(1, release("04", 0)),
		is(1, refresh("06")),
		is(2, join(writer("07").by("b"))),
		is(1, join(reader("08").by("b"))),
		renews(1, "08"),
		ends(1, release("06", 0)),
		ends(1, release("08", 0)),
		is(0, join(reader("09").by("b"))),
	},
	"dead and deaf waiters": {
		is(1, acquire(writer("01"))),
		is(0, acquire(writer("02").listening(deaf))),
		is(0, acquire(reader("03").listening(deaf))),
		is(0, acquire(reader("04"))),
		ends(1, release("01", 0)),
		is(0, acquire(writer("02").listening(deaf))),
		is(1, refresh("04")),
		ends(1, release("04", 0)),
		is(1, refresh("02")),
		is(0, refresh("03")),
		ends(1, release("02", 0)),
		is(1, refresh("03")),
		ends(1, release("03", 0)),
		is(1, acquire(writer("05"))),
		is(0, acquire(writer("06").listening(deaf))),
		ends(1, release("05", 0)),
		ends(2, releaseAll("06", ttl)),
		is(3, acquire(writer("06"))),
	},
	"one of several masters": {
		quorum(is(1, acquireByID(writer("05")))),
		quorum(is(0, acquireByID(writer("03")))),
		quorum(is(0, raise("03", 1))),
		quorum(is(0, raise("05", 1))),
		quorum(step{call: func(tokens map[string]int64) call {
			return raise("05", tokens[ulid("05")]+5)
		}, status: 1, second: same}),
		quorum(step{call: func(tokens map[string]int64) call {
			return yield("05", tokens[ulid("05")])
		}, status: 0, second: same}),
		quorum(is(1, refresh("03"))),
		quorum(step{call: func(tokens map[string]int64) call {
			return yield("03", tokens[ulid("03")])
		}, status: 1, second: same}),
		quorum(is(2, yield("09", 1))),
		quorum(is(1, acquireByID(writer("03")))),
		quorum(renews(1, "03")),
		quorum(ends(1, release("03", 0))),
		quorum(is(1, refresh("05"))),
		quorum(ends(1, release("05", 0))),
		quorum(step{call: func(tokens map[string]int64) call {
			return regain(writer("05"), tokens[ulid("05")], 0)
		}, status: 1, second: same}),
		quorum(is(0, regain(writer("06"), 1, 1))),
		quorum(ends(1, release("05", 0))),
	},
}

func TestEveryScriptTwiceIsTheSameAsOnce(t *testing.T) {
	for name, steps := range sequences {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(e *env) {
				e.newMarker()
				tokens := map[string]int64{}
				for i, s := range steps {
					if s.pause > 0 {
						e.pass(s.pause)
					}
					e.twice(fmt.Sprint("step ", i), s, tokens)
				}
				e.pass(2 * ttl * time.Millisecond) // the tombstones
				e.run(refresh())
				e.onlyTokensStay()
			})
		})
	}
}

func (e *env) twice(what string, s step, tokens map[string]int64) {
	e.t.Helper()
	c := s.call(tokens)
	what += fmt.Sprintf(", %s %q", c.script, c.args)
	first := e.run(c)
	if s.status != same {
		require.Equal(e.t, s.status, status(c, first), "%s: %v", what, first)
	}
	once := e.dump()
	second := e.run(c)
	twice := e.dump()
	if s.second != same {
		require.Equal(e.t, s.second, status(c, second), what)
		first[0] = s.second
	}
	require.Equal(e.t, e.repeatable(c, first), e.repeatable(c, second), what)
	require.Equal(e.t, e.repeatableState(once), e.repeatableState(twice), what)
	remember(c, second, tokens)
}

// remember notes the token that a hold was told.
func remember(c call, reply []any, tokens map[string]int64) {
	switch c.script {
	case scripts.Acquire, scripts.Join, scripts.Raise, scripts.Yield:
		if reply[0].(int64) == 1 {
			tokens[c.args[1]] = reply[1].(int64)
		}
	case scripts.Refresh:
		for i, hold := range c.args[1:] {
			if reply[3+3*i].(int64) == 1 {
				tokens[hold] = reply[4+3*i].(int64)
			}
		}
	}
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
			require.Regexp(e.t, `^(t|tw|s)=\d+$`, entry)
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

// repeatable returns what a second run must answer alike. In fake time that is everything, but the clock of a release
// that need not read it; on a real server the times that a reply tells go on.
func (e *env) repeatable(c call, reply []any) (kept []any) {
	if c.script == scripts.Release { // status, server us, more
		return []any{reply[0], reply[2]}
	}
	if e.mini != nil {
		return reply
	}
	switch c.script {
	case scripts.Refresh: // server us, wake, more, then status, token, left for each waiter
		for i, field := range reply[2:] {
			if i%3 != 0 {
				kept = append(kept, field)
			}
		}
		return append(kept, reply[2])
	case scripts.Renew: // server us, then statuses
		return reply[1:]
	default: // status, token, left, server us, then the holder's details and id, or the owner's counter and the mode
		kept = append(kept, reply[:2]...)
		return append(kept, reply[min(4, len(reply)):min(6, len(reply))]...)
	}
}

// record is a record of lock.lua: first word, expiry, token, since, details.
var record = regexp.MustCompile(`^(\w+) (\d+) (\d+) (\d+) (.*)$`)

var writeHold = regexp.MustCompile(`^(\w+) (\d+) (\d+)( n)?$`)

// repeatableState is repeatable for a dump: without the expiries, which are set from the server's clock.
func (e *env) repeatableState(dump map[string][]string) map[string][]string {
	if e.mini != nil {
		return dump
	}
	kept := map[string][]string{}
	for key, content := range dump {
		kept[key] = []string{}
		for _, entry := range content[:len(content)-1] { // the last is what is left of the key
			if strings.HasSuffix(key, ":h") || strings.HasSuffix(key, ":x") {
				entry, _, _ = strings.Cut(entry, " ")
			}
			field, text, _ := strings.Cut(entry, "=")
			if r := record.FindStringSubmatch(text); r != nil {
				r[0], r[2] = field, "expiry"
				if r[1] == "x" {
					r[4] = "since"
				}
				entry = strings.Join(r, " ")
			} else if r := writeHold.FindStringSubmatch(text); r != nil && field == "w" {
				entry = strings.Join([]string{field, r[1], r[3], r[4]}, " ")
			}
			kept[key] = append(kept[key], entry)
		}
	}
	return kept
}
