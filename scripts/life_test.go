package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

func (e *env) life(key string) int64 {
	e.t.Helper()
	left, err := e.do("PTTL", key).AsInt64()
	require.NoError(e.t, err)
	return left
}

// The key of a lock has an hour left after each grant and each renewal, although few of them give it another.
func TestAKeyLivesForItsHour(t *testing.T) {
	uses := map[string]func(e *env){
		"one writer after another": func(e *env) {
			e.run(acquire(writer("01")))
			e.run(release("01", 0))
		},
		"a named owner": func(e *env) {
			e.run(acquire(writer("01").by("a")))
			e.run(release("01", 0))
		},
		"a group": func(e *env) {
			require.Equal(e.t, []string{"1"}, e.lines(group(nil, []pair{{"n", "01"}}, "")))
			require.Equal(e.t, []string{"1"}, e.lines(group([]pair{{"n", "01"}}, nil, "")))
		},
		"a hand-off": func(e *env) {
			e.run(acquire(writer("01")))
			e.run(acquire(writer("02")))
			e.run(release("01", 0))
			e.run(release("02", 0))
		},
		"a reader": func(e *env) {
			e.run(acquire(reader("01")))
			e.run(release("01", 0))
		},
		"a renewal": func(e *env) {
			token := e.run(acquire(writer("01")))[1]
			require.EqualValues(e.t, 1, e.run(renew("01", ttl, token))[1])
		},
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(e *env) {
				for range 40 {
					use(e)
					require.GreaterOrEqual(e.t, e.life(lockKey), time.Hour.Milliseconds())
					e.pass(37 * time.Second)
				}
			})
		})
	}
}

// A hand-off into other hundred seconds than those of the waiter's request gives the key its hour, too: the next grants
// count on it.
func TestAHandOffGivesTheKeyItsHour(t *testing.T) {
	inFakeTime(t, func(e *env) {
		e.pass(time.Duration(100_000-e.now().UnixMilli()%100_000)*time.Millisecond - 2*time.Second)
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02")))
		e.pass(3 * time.Second)
		e.run(release("01", 0))
		e.run(release("02", 0))
		e.pass(98 * time.Second)
		e.run(acquire(writer("03")))
		require.GreaterOrEqual(e.t, e.life(lockKey), time.Hour.Milliseconds())
	})
}

// The key of a long lease outlives it by 100 s, also where it has just got its hour, and however it is granted.
func TestTheKeyOfALongLease(t *testing.T) {
	const day = 24 * 3_600_000
	ways := map[string]func(e *env){
		"acquire": func(e *env) { e.run(acquire(writer("02").lasting(day))) },
		"read":    func(e *env) { e.run(acquire(reader("02").lasting(day))) },
		"group": func(e *env) {
			long := group(nil, []pair{{"n", "02"}}, "")
			long.args[3] = acquire(writer("02").lasting(day)).args[0]
			require.Equal(e.t, []string{"1"}, e.lines(long))
		},
		"renew": func(e *env) {
			token := e.run(acquire(writer("02")))[1]
			require.EqualValues(e.t, 1, e.run(renew("02", day, token))[1])
		},
	}
	everywhere(t, func(e *env) {
		for name, way := range ways {
			e.flushAll()
			e.run(acquire(writer("01")))
			e.run(release("01", 0))
			way(e)
			require.Greater(e.t, e.life(lockKey), int64(day+40_000), name)
			e.run(release("02", 0))
		}
	})
}

// A read hold of a day gets a TTL of 400 ms just before its end, in a call that renews another one first. Its new
// expiry is in the same minute, so its key gets no other hour, and must outlive it all the same.
func TestAKeyOutlivesAShorterTTL(t *testing.T) {
	const day = 24 * time.Hour
	inFakeTime(t, func(e *env) {
		e.pass(time.Duration(60_000-e.now().UnixMilli()%60_000)*time.Millisecond + 10*time.Second)
		long := e.run(acquire(reader("01").lasting(int(day.Milliseconds()))))[1]
		e.pass(day - 200*time.Millisecond)
		other := acquire(reader("02").lasting(400))
		other.keys = lockKeys("m")[:1]
		both := renew("02", 400, e.run(other)[1])
		both.args[2] = "r"
		both.keys, both.args = []string{lockKeys("m")[0], lockKey}, append(both.args, ulid("01"), padded(long))
		require.Equal(e.t, []any{int64(1), int64(1)}, e.run(both)[1:])
		require.GreaterOrEqual(e.t, e.life(lockKeys("n")[1]), int64(400))
	})
}

// The key of a lock lives as long as a waiter may wait without a refresh, also at the end of a long lease.
func TestAWaiterKeepsTheKey(t *testing.T) {
	const day = 24 * time.Hour
	inFakeTime(t, func(e *env) {
		e.run(acquire(writer("01").lasting(int(day.Milliseconds()))))
		e.pass(day - time.Minute)
		e.run(acquire(writer("02").waiting(int(time.Hour.Milliseconds()))))
		require.GreaterOrEqual(e.t, e.life(lockKey), time.Hour.Milliseconds())
	})
}

// Field w that these scripts have not written is in conflict, and nothing is changed.
func TestAFieldOfAnotherFormIsAConflict(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, w := range []string{
			"7", ulid("01") + " 1795939034320 1795939024320", strings.Repeat("0z", 12), strings.Repeat("0z", 20),
			padded(7) + "zzzzzzzz", padded(7) + "17959390" + strings.Repeat("z", 16), strings.Repeat("0z", 32),
			padded(7) + strings.Repeat("z", 13) + ulid("09") + "   400000",
		} {
			e.flushAll()
			e.setFields(lockKey, "w", w)
			before := e.dump()
			for _, c := range []call{
				acquire(writer("01")), tryAcquire(writer("01")), acquire(reader("01")),
				acquire(writer("01").by("a")), acquire(writer("01").shared(9)), join(reader("01").by("a")),
				refresh("01"), raise("01", 7), yield("01", 7), regain(writer("01"), 7, 1), release("01", ttl),
			} {
				_, err := e.try(c)
				require.ErrorContains(e.t, err, "WRONGTYPE field w", "%s of %q", c.script, w)
			}
			if strings.Trim(w, "0123456789") != "" { // else it is shown as the largest token
				_, err := e.try(inspect())
				require.ErrorContains(e.t, err, "WRONGTYPE field w", w)
			}
			require.EqualValues(e.t, 0, e.run(renew("01", ttl, 7))[1])
			require.Equal(e.t, []string{"", ""}, e.lines(group([]pair{{"n", "01"}}, []pair{{"n", "01"}}, "")))
			require.Equal(e.t, before[lockKey][:1], e.dump()[lockKey][:1], "%q", w)
		}
	})
}

// A tombstone for one acquire goes with that acquire, so the lock has its common case again. One for several stays,
// also after a release that knows of one.
func TestATombstoneForOneAcquireGoesWithIt(t *testing.T) {
	everywhere(t, func(e *env) {
		for name, c := range map[string]struct {
			left  []call
			stays bool
		}{
			"one":                     {[]call{release("01", ttl)}, false},
			"one, said twice":         {[]call{release("01", ttl), release("01", ttl)}, false},
			"several":                 {[]call{releaseAll("01", ttl)}, true},
			"several, then one":       {[]call{releaseAll("01", ttl), release("01", ttl)}, true},
			"one, then several":       {[]call{release("01", ttl), releaseAll("01", ttl)}, true},
			"one, may be sent again":  {[]call{on("n", scripts.Release, ulid("01"), ttl, 2)}, true},
			"granted, and several":    {[]call{acquire(writer("01")), releaseAll("01", ttl)}, true},
			"one, of a hold that was": {[]call{acquire(writer("01")), release("01", 0), release("01", ttl)}, false},
		} {
			e.name = name
			for _, call := range c.left {
				e.run(call)
			}
			require.EqualValues(e.t, 3, e.run(acquire(writer("01")))[0], "%s: it is over", name)
			fields := strings.Join(e.dump()[lockKeys(name)[0]], " ")
			if c.stays {
				require.Contains(e.t, fields, ulid("01"), name)
				require.EqualValues(e.t, 3, e.run(acquire(writer("01")))[0], "%s: it is over", name)
			} else {
				require.NotContains(e.t, fields, ulid("01"), name)
			}
			require.EqualValues(e.t, 1, e.run(acquire(writer("02")))[0], name)
			e.run(release("02", 0))
		}
	})
}

// One acquire can come, and the release finds its hold: so it has come, and only the minimum of 300 ms has to stand. If
// another one may come, the ended hold stands for as long as a tombstone.
func TestAnEndedHoldStandsForItsMinimum(t *testing.T) {
	everywhere(t, func(e *env) {
		for comes, status := range []int64{1, 2, 1} {
			require.NoError(e.t, e.do("FLUSHALL").Error())
			require.EqualValues(e.t, 1, e.run(acquire(writer("01").lasting(60_000)))[0])
			e.run(on("n", scripts.Release, ulid("01"), 60_000, comes, "300 300"))
			e.pass(time.Second)
			require.EqualValues(e.t, status, e.run(tryAcquire(writer("02")))[0], comes)
		}
	})
}

// A release can come before the first acquire of a lock: then the lock has a tombstone, and no token. A hold of no form
// overlooks it.
func TestATombstoneWithoutACounter(t *testing.T) {
	everywhere(t, func(e *env) {
		long := writer("02")
		long.meta = strings.Repeat("long", 30)
		for name, other := range map[string]request{
			"plain": writer("02"), "long": long, "named": writer("02").by("a"), "shared": writer("02").shared(9),
			"read": reader("02"),
		} {
			e.name = name
			e.run(releaseAll("01", ttl))
			require.EqualValues(e.t, 1, e.run(acquire(other))[0], name)
			for range 2 {
				require.EqualValues(e.t, 3, e.run(acquire(writer("01")))[0], "%s: it is over", name)
			}
			e.run(release("02", 0))
			require.EqualValues(e.t, 3, e.run(acquire(writer("01")))[0], "%s: it is over", name)
		}
		e.name = "first"
		e.run(release("01", ttl))
		require.EqualValues(e.t, 3, e.run(acquire(writer("01").by("a")))[0])
	})
}

// A server without memory gives back a hold of each form: the first write of the script is one that it accepts.
func TestAReleaseOnAFullServer(t *testing.T) {
	onServers(t, func(e *env) {
		long := writer("01")
		long.meta = strings.Repeat("long", 30)
		for name, r := range map[string]request{
			"plain": writer("01"), "long": long, "named": writer("01").by("a"), "shared": writer("01").shared(9),
		} {
			token := e.run(acquire(r))[1]
			renewed := name == "plain" && e.run(renew("01", ttl, token))[1] == int64(2)
			require.False(e.t, renewed)
			require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "1").Error())
			_, err := e.try(acquire(writer("02")))
			require.Error(e.t, err)
			require.EqualValues(e.t, 1, e.run(release("01", 0))[0], name)
			require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "0").Error())
			e.onlyTokensStay()
			e.run(acquire(writer("03")))
			require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "1").Error())
			require.EqualValues(e.t, 1, e.run(release("03", 0))[0], "not renewed")
			require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "0").Error())
			e.onlyTokensStay()
		}
	})
}

// A release passes over a writer whose process does not listen.
func TestAHandOffToNobodyGoesOn(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(writer("02").listening(deaf)))
		e.run(acquire(writer("03")))
		e.run(release("01", 0))
		_, _, holder := e.counters(lockKey)
		require.Equal(e.t, ulid("03"), holder)
		require.Equal(e.t, "1", e.members("aside"))
	})
}

// A member that has no record has no meaning, and goes when it expires.
func TestAnExpiredMemberWithoutARecordGoes(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01")))
		require.NoError(e.t, e.do("ZADD", lockKeys("n")[1], "7", ulid("02")).Error())
		e.run(refresh())
		require.Equal(e.t, "1", e.members("holds"))
		left, err := e.do("ZCARD", lockKeys("n")[1]).AsInt64()
		require.NoError(e.t, err)
		require.EqualValues(e.t, 1, left)
	})
}

// Leases that were last renewed in one call are compared as one text. None is taken for alive since the one before it
// was, with another TTL, and each key gets its hour.
func TestARenewalOfWhatWasRenewedTogether(t *testing.T) {
	everywhere(t, func(e *env) {
		before := e.now().Add(-150 * time.Second).UnixMilli()
		renewal := func(ttl int, lasting ...int) (all call) {
			all = call{"renew", nil, texts([]any{0, ttl, "w"})}
			for i, ttl := range lasting {
				key := lockKeys(fmt.Sprint("n", i))[0]
				w := padded(7) + leading(fmt.Sprint(before), 13) + ulid("01") + fmt.Sprintf("%8d2", ttl)
				e.setFields(key, "w", w, "d", writer("01").details(), "b", before)
				require.NoError(e.t, e.do("PEXPIRE", key, "60000").Error())
				all.keys, all.args = append(all.keys, key), append(all.args, ulid("01"), padded(7))
			}
			return all
		}
		many := renewal(100_000, 400_000, 100_000)
		require.Equal(e.t, []any{int64(1), int64(0)}, e.run(many)[1:], "the second one has expired")
		many = renewal(400_000, 400_000, 400_000, 400_000)
		require.Equal(e.t, []any{int64(1), int64(1), int64(1)}, e.run(many)[1:])
		for _, key := range many.keys {
			require.GreaterOrEqual(e.t, e.life(key), time.Hour.Milliseconds())
			require.Equal(e.t, e.field(many.keys[0], "w"), e.field(key, "w"))
		}
	})
}

// A writer takes the lock over a hold of any form that has expired, and nothing of that hold stays.
func TestAWriterTakesTheLockOverAnExpiredHold(t *testing.T) {
	long := writer("01")
	long.meta = strings.Repeat("long", 30)
	everywhere(t, func(e *env) {
		for name, r := range map[string]request{
			"plain": writer("01"), "long": long, "named": writer("01").by("a"), "shared": writer("01").shared(9),
		} {
			for _, renewed := range []bool{false, true} {
				e.flushAll()
				token := e.run(acquire(r))[1].(int64)
				if renewed {
					e.pass(time.Second)
					require.EqualValues(e.t, 1, e.run(renew("01", ttl, token))[1], name)
				}
				e.pass(ttl*time.Millisecond + time.Second)
				reply := e.run(acquire(writer("02")))
				require.EqualValues(e.t, 1, reply[0], name)
				require.Greater(e.t, reply[1], token, name)
				require.EqualValues(e.t, 0, e.run(renew("01", ttl, token))[1], name)
				require.Equal(e.t, writer("02").details(), e.run(tryAcquire(writer("03")))[7], name)
				require.EqualValues(e.t, 1, answer(e, release("02", 0)))
				e.onlyTokensStay()
			}
		}
	})
}
