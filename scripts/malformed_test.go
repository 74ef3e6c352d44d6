package scripts_test

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// An operator may delete any field. Each script then answers, or says that the lock is in conflict. Who is in keeps
// others out, unless the field has the hold itself or the number of records. The lock is free when all that it had has
// expired, and nothing stays.
func TestAFieldThatIsDeleted(t *testing.T) {
	onStandingClocks(t, func(e *env) {
		turn := 0
		e.inEachState(func(state string, build func() standing, c call) {
			build()
			holders := e.run(inspect())[3].([]any)
			turn++
			for i, field := range e.fieldsOf(lockKey) {
				if (turn+i)%3 != 0 {
					continue // each is there in several states
				}
				what := state + ", without " + field
				build()
				_, before := e.largest()
				require.NoError(e.t, e.do("HDEL", lockKey, field).Error())
				e.answersClearly(c, what)
				e.answersClearly(inspect(), what+", then inspect")
				e.answersClearly(refresh("02", "03"), what+", then refresh")
				if reply := e.answersClearly(tryAcquire(writer("21")), what); keepsOut(holders, field, c) {
					require.EqualValues(e.t, 2, reply[0], what)
				}
				e.isFreeAtLast(what, before)
			}
		})
	})
}

// keepsOut reports whether one of the holders still keeps a writer out after the loss of a field and a call.
func keepsOut(holders []any, lost string, c call) bool {
	keeps := []scripts.Name{scripts.Acquire, scripts.Join, scripts.Raise, scripts.Renew, scripts.Refresh, scripts.Inspect}
	if !slices.Contains(keeps, c.script) || lost == "w" || lost == "n" {
		return false
	}
	return slices.ContainsFunc(holders, func(h any) bool { return h.([]any)[0] != lost })
}

// answersClearly requires that a call is answered, or refused for a conflict.
func (e *env) answersClearly(c call, what string) []any {
	e.t.Helper()
	reply, err := e.attempt(c)
	require.True(e.t, err == nil || strings.HasPrefix(err.Error(), "WRONGTYPE "), "%s: %v", what, err)
	return reply
}

// isFreeAtLast requires that a writer gets the lock when all has expired, with a token beyond that one.
func (e *env) isFreeAtLast(what string, token int64) {
	e.t.Helper()
	for range 2 {
		e.pass(4 * ttl * time.Millisecond)
		e.answersClearly(refresh(), what)
	}
	reply := e.answersClearly(tryAcquire(writer("22")), what)
	require.EqualValues(e.t, 1, reply[0], what)
	require.Greater(e.t, reply[1], token, what)
	require.EqualValues(e.t, 1, e.answersClearly(release("22", 0), what)[0], what)
	for key, content := range e.dump() {
		require.NotEqual(e.t, "left -1", content[len(content)-1], "%s: %s", what, key)
	}
}

// fieldsOf returns the fields of a hash, ordered.
func (e *env) fieldsOf(key string) []string {
	e.t.Helper()
	fields, err := e.do("HKEYS", key).AsStrSlice()
	require.NoError(e.t, err)
	slices.Sort(fields)
	return fields
}

// largest returns field w, and the largest token in it.
func (e *env) largest() (w string, token int64) {
	e.t.Helper()
	if w = e.field(lockKey, "w"); w != "" {
		token, _, _ = e.counters(lockKey)
	}
	return w, token
}

var isFree = regexp.MustCompile(`^$|^(\d{24}|\d{40})n?$`)

// A field w that differs in any place from what these scripts write is a conflict, but for the name of the hold
// and the sum at the end.
func TestFieldWInWhichOnePlaceDiffers(t *testing.T) {
	onStandingClocks(t, func(e *env) {
		e.newMarker()
		hold := e.ahead(0)
		e.run(hold.of(acquire(writer("01"))))
		elsewhere := acquire(writer("01"))
		elsewhere.keys = []string{"other"}
		other := padded(e.run(hold.of(elsewhere))[1])
		held := e.field(lockKey, "w")
		for _, w := range []string{held, held[:24], held[:40]} {
			for i := range len(w) + 1 {
				forms := []string{w[:i], w[:i] + "0" + w[i:]}
				if free := len(w) == 64 && (i >= 29 && i < 55 || i == 63); i < len(w) && !free {
					for _, odd := range []string{"x", "E", "-", "+", ".", "\x00"} {
						forms = append(forms, w[:i]+odd+w[i+1:])
					}
				}
				for _, form := range forms {
					if form == held || isFree.MatchString(form) {
						continue
					}
					e.setFields(lockKey, "w", form)
					calls := []call{refresh(), release("09", ttl), raise("01", 7), join(reader("02").by("a"))}
					if len(form) == 64 {
						reply, err := e.attempt(hold.of(tryAcquire(writer("02"))))
						bounded := err == nil && leftOf(reply) >= 0 && leftOf(reply) < 100_000_000
						require.True(e.t, bounded || err != nil, "it is not held for ever: %q %v", form, reply)
						many := call{scripts.Renew, []string{lockKey, "other"}, nil}
						many.args = texts([]any{0, ttl, "s", ulid("01"), form[:16], ulid("01"), other})
						require.EqualValues(e.t, 1, e.run(hold.of(many))[2], "the other lease of the call: %q", form)
					}
					for _, c := range calls {
						_, err := e.attempt(hold.of(c))
						require.ErrorContains(e.t, err, "WRONGTYPE field w", "%s: %q", c.script, form)
					}
				}
			}
		}
	})
}

// leftOf returns the milliseconds that are left of the write hold in the way. A line that is no reply for a client has
// them too, as the script has counted them.
func leftOf(refused []any) float64 {
	if line, is := refused[0].(string); is {
		number := func(part string) float64 {
			n, _ := strconv.ParseFloat(strings.TrimSpace(part), 64)
			return n
		}
		return number(line[17:30]) + number(line[56:64]) - math.Floor(number(line[1:17])/1000)
	}
	return float64(refused[2].(int64))
}

// A field n that these scripts have not written is a conflict, too.
func TestFieldNOfAnotherForm(t *testing.T) {
	onStandingClocks(t, func(e *env) {
		for _, n := range []string{"", "1", "x", "1 2", "1 x 0", "1 0 0 0", "-1 0 0"} {
			e.flushAll()
			e.run(acquire(reader("01")))
			e.setFields(lockKey, "n", n)
			before := e.dump()
			for _, c := range []call{
				acquire(writer("02")), acquire(reader("02")), refresh("01"), release("01", 0), join(reader("02").by("a")),
				yield("01", 7), regain(reader("02"), 7, 0), breaks("01"),
			} {
				_, err := e.try(c)
				require.ErrorContains(e.t, err, "WRONGTYPE field w or n", "%s: %q", c.script, n)
			}
			require.Equal(e.t, before, e.dump(), n)
		}
		for _, n := range []string{"-1 1 0", "x 0", " 0"} { // of a writer for which another one waits
			e.flushAll()
			e.run(acquire(writer("01")))
			e.run(acquire(writer("02")))
			e.setFields(lockKey, "n", n)
			before := e.dump()
			for _, c := range []call{acquire(writer("03")), tryAcquire(writer("03")), release("01", 0), refresh("02")} {
				_, err := e.try(c)
				require.ErrorContains(e.t, err, "WRONGTYPE field w or n", "%s: %q", c.script, n)
			}
			require.Equal(e.t, before, e.dump(), n)
		}
	})
}
