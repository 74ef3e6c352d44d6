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
		for i, hold := range c.args[2:] {
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
	case scripts.Break: // status, left, server us, more
		return []any{reply[0], reply[3]}
	case scripts.Refresh: // server us, wake, more, then status, token, left for each waiter
		for i, field := range reply[2:] {
			if i%3 != 0 {
				kept = append(kept, field)
			}
		}
		return append(kept, reply[2])
	case scripts.Renew: // server us, then statuses
		return reply[1:]
	case scripts.Acquire: // status, token, left, server us, then first of a block, or holder: id, left, held, details
		kept = append(kept, reply[:2]...)
		kept = append(kept, reply[min(4, len(reply)):min(5, len(reply))]...)
		return append(kept, reply[min(7, len(reply)):]...)
	default: // status, token, left, server us, then the owner's counter and the mode
		kept = append(kept, reply[:2]...)
		return append(kept, reply[min(4, len(reply)):min(6, len(reply))]...)
	}
}

// record is a record of lock.lua: first word, expiry, token, since, details.
var record = regexp.MustCompile(`^(\w+) (\d+) (\d+) (\d+) (.*)$`)

var writeHold = regexp.MustCompile(`^(\w+) (\d+) (\d+)((?: [=\w]+)*)$`)

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

// Who converts a hold once more may overtake the release of the attempt before, which was granted and given up, and of
// what the hold was converted from. None of them is in its way, and which is released first does not matter.
func TestAConversionOvertakesReleases(t *testing.T) {
	for name, c := range map[string]struct {
		stand []request // in their order
		again request
		gone  []string
		joins bool // as a reader, when those have gone
	}{
		"a downgrade": {
			[]request{writer("01"), reader("02").converting("01")},
			reader("04").converting("01"),
			[]string{"02", "01"},
			true,
		},
		"a downgrade, released last": {
			[]request{writer("01"), reader("02").converting("01"), reader("03").converting("01")},
			reader("04").converting("01"),
			[]string{"01", "03", "02"},
			true,
		},
		"a downgrade after an upgrade": {
			[]request{reader("01"), writer("02").converting("01"), reader("03").converting("02")},
			reader("04").converting("02"),
			[]string{"03", "01", "02"},
			true,
		},
		"an upgrade": {
			[]request{reader("01"), writer("02").converting("01")},
			writer("04").converting("01"),
			[]string{"02", "01"},
			false,
		},
		"an upgrade, released last": {
			[]request{reader("01"), writer("02").converting("01"), writer("03").converting("01")},
			writer("04").converting("01"),
			[]string{"01", "03", "02"},
			false,
		},
		"an upgrade after a downgrade": {
			[]request{writer("01"), reader("02").converting("01"), writer("03").converting("02")},
			writer("04").converting("02"),
			[]string{"01", "03", "02"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(e *env) {
				for _, r := range append(c.stand, c.again) {
					require.EqualValues(e.t, 1, answer(e, tryAcquire(r.by("a"))))
				}
				token := e.run(tryAcquire(c.again.by("a")))[1]
				for _, hold := range c.gone {
					require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("05"))))
					require.EqualValues(e.t, 1, answer(e, release(hold, 0)))
				}
				require.EqualValues(e.t, 1, e.run(renew("04", ttl, token))[1])
				require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("05"))))
				require.Equal(e.t, c.joins, answer(e, tryAcquire(reader("06"))) == 1)
				e.run(release("04", 0))
				e.run(release("06", 0))
				e.pass(2 * ttl * time.Millisecond)
				e.run(refresh())
				e.onlyTokensStay()
			})
		})
	}
}

// Who joined the hold stays in the way, and is named: not the hold itself, nor an attempt before.
func TestARefusedConversionNamesWhoJoined(t *testing.T) {
	for name, c := range map[string]struct{ hold, before, again request }{
		"a downgrade": {writer("01"), reader("03").converting("01"), reader("04").converting("01")},
		"an upgrade":  {reader("01"), writer("03").converting("01"), writer("04").converting("01")},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(e *env) {
				e.run(acquire(c.hold.by("a").lasting(2 * ttl)))
				require.EqualValues(e.t, 1, answer(e, tryAcquire(c.before.by("a"))))
				require.EqualValues(e.t, 1, answer(e, join(reader("02").by("a").lasting(3*ttl))))
				refused := e.run(tryAcquire(c.again.by("a")))
				require.EqualValues(e.t, 2, refused[0])
				require.Equal(e.t, ulid("02"), refused[4])
			})
		})
	}
}

// A raise of an attempt beside another does not give it a token that the other may have.
func TestARaiseBesideAnotherAttempt(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		token := func(c call) int64 {
			reply := e.run(votes.of(c))
			require.EqualValues(e.t, 1, reply[0])
			return reply[1].(int64)
		}
		token(acquireByID(reader("01")))
		first := token(tryAcquire(writer("02").converting("01")))
		second := token(tryAcquire(writer("03").converting("01")))
		third := token(tryAcquire(writer("04").converting("01")))
		require.Less(e.t, first, second)
		require.Less(e.t, second, third)
		require.EqualValues(e.t, 0, answer(e, votes.of(raise("03", third))))
		require.EqualValues(e.t, 1, answer(e, votes.of(raise("04", third+10))))
	})
}

// What is written down of a write hold stays the same, however often it is converted.
func TestAWriteHoldIsWrittenDownTheSameWay(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		written := e.field(lockKey, "w")
		for _, hold := range []string{"02", "03"} {
			require.EqualValues(e.t, 1, answer(e, tryAcquire(reader(hold).converting("01"))))
			require.Regexp(e.t, "^"+written+` =\d+$`, e.field(lockKey, "w"))
		}
	})
}

// answer is the first number of a reply.
func answer(e *env, c call) int64 {
	e.t.Helper()
	return e.run(c)[0].(int64)
}

// Beside others a reader that upgrades waits before all who wait, holds new readers back, and keeps a second one off.
// Whoever gives up still reads.
func TestAReaderUpgradesWhenTheOthersHaveLeft(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		read := e.run(acquire(reader("01")))[1]
		e.run(acquire(reader("02")))
		e.run(acquire(writer("03")))
		upgrade := acquire(writer("04").converting("01"))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 7, answer(e, acquire(writer("05").converting("02"))), "another one is upgrading")
		require.EqualValues(e.t, 0, answer(e, acquire(reader("06"))))

		e.run(release("04", 0))
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, read))[1], "it still reads")
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.Empty(e.t, e.heard(messages))
		e.run(release("02", 0))
		require.Len(e.t, e.heard(messages), 1, "a hand-off")
		require.EqualValues(e.t, 1, e.run(refresh("04"))[3])
		e.run(release("04", 0))
		require.EqualValues(e.t, 2, e.run(renew("01", ttl, read))[1], "also where it was granted")
		require.EqualValues(e.t, 0, e.run(refresh("03"))[3], "so nobody has got in")
		e.run(release("01", 0))
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3])
		e.run(release("03", 0))
		e.run(release("06", 0))
		e.pass(2 * ttl * time.Millisecond)
		e.run(refresh())
		e.onlyTokensStay()
	})
}

// A reader's kept grant has a larger token than before, though the client that granted it was ahead: its own client
// counts no other.
func TestAReadersGrantThatIsKeptHasALargerToken(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		token := e.run(e.ahead(500_000).of(acquireByID(reader("01"))))[1].(int64)
		kept := e.run(votes.of(yield("01", token)))
		require.Equal(e.t, []any{int64(1), token + 1}, kept[:2])

		e.run(votes.of(acquireByID(writer("00").listening("pnobody"))))
		again := e.run(votes.of(yield("01", token+1)))
		require.Equal(e.t, []any{int64(1), token + 2}, again[:2], "come back from a dead one")
	})
}

// One that was passed over while another came to upgrade has lost its place to it: it asks anew, and is told so. Else
// each would wait for the other to leave.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	for name, back := range map[string]func(e *env, c call){
		"by a refresh": func(e *env, _ call) { require.EqualValues(e.t, 2, e.run(refresh("03"))[3]) },
		"asked again":  func(e *env, c call) { require.EqualValues(e.t, 7, answer(e, c)) },
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(e *env) {
				e.run(acquire(reader("01")))
				e.run(acquire(reader("02")))
				upgrade := acquire(writer("03").converting("01").listening("pnobody"))
				require.EqualValues(e.t, 0, answer(e, upgrade))
				e.run(release("02", 0)) // nobody hears of the grant
				require.EqualValues(e.t, 1, answer(e, acquire(reader("04"))))
				require.EqualValues(e.t, 0, answer(e, acquire(writer("05").converting("04"))))
				back(e, upgrade)
				require.EqualValues(e.t, 7, answer(e, upgrade))
				e.run(release("01", 0))
				require.EqualValues(e.t, 1, e.run(refresh("05"))[3])
				e.run(release("04", 0))
				e.run(release("05", 0))
				e.onlyTokensStay()
			})
		})
	}
}

// Where the other one has given up or is dead, or it is an attempt of its own, it comes back to its place.
func TestAnUpgradeThatWasPassedOverComesBack(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01").lasting(4 * ttl)))
		e.run(acquire(reader("02")))
		upgrade := acquire(writer("03").converting("01").waiting(4 * ttl).listening("pnobody"))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		e.run(release("02", 0))
		require.EqualValues(e.t, 1, answer(e, acquire(reader("04").lasting(4*ttl))))
		require.EqualValues(e.t, 0, answer(e, acquire(writer("05").converting("04"))))
		e.pass(claim * time.Millisecond) // 05 is dead
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		require.EqualValues(e.t, 7, answer(e, acquire(writer("06").converting("04"))))
		e.run(release("04", 0))
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3])
	})
}

// A raise of a write hold that is being converted, to the token that it has, finds it there.
func TestARaiseOfWhatIsBeingConverted(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		votes := vote{proposal: 100, seen: setID}
		token := e.run(votes.of(acquireByID(writer("01"))))[1].(int64)
		require.EqualValues(e.t, 1, answer(e, votes.of(tryAcquire(reader("02").converting("01")))))
		require.EqualValues(e.t, 1, answer(e, votes.of(raise("01", token))))
		require.EqualValues(e.t, 0, answer(e, votes.of(raise("01", token+10))))
	})
}
