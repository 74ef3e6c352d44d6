package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// lose deletes one key of the lock: "" is the hash, ":h", ":q" and ":x" are its zsets.
func (e *env) lose(suffix string) {
	e.t.Helper()
	require.NoError(e.t, e.do("DEL", lockKey+suffix).Error())
}

// Where the zset of the holds is lost, the records keep everybody else out, and a renewal writes a member again.
func TestHoldsWhoseIndexIsLostKeepTheLock(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, lookup := range []call{tryAcquire(writer("09")), acquire(reader("01")), refresh(), release("08", 0)} {
			e.flushAll()
			tokens := map[string]any{}
			for _, hold := range []string{"01", "02", "03"} {
				tokens[hold] = e.run(acquire(reader(hold)))[1]
			}
			e.lose(":h")
			e.run(lookup)
			require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("09"))), "refused")
			require.EqualValues(e.t, 1, e.run(renew("01", ttl, tokens["01"]))[1])
			require.EqualValues(e.t, tokens["02"], e.run(acquire(reader("02")))[1], "the grant is the same")
			for _, hold := range []string{"01", "02", "03"} {
				require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("09"))))
				require.EqualValues(e.t, 1, answer(e, release(hold, 0)))
			}
			require.EqualValues(e.t, 1, answer(e, acquire(writer("09"))))
			e.run(release("09", 0))
			e.onlyTokensStay()
		}
	})
}

// The same where nothing but a renewal or another reader comes first: the zset never lacks some of the holds.
func TestAnIndexOfHoldsHasAllOrNone(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, renews := range []bool{true, false} {
			e.flushAll()
			token := e.run(acquire(reader("01")))[1]
			e.run(acquire(reader("02")))
			e.lose(":h")
			if renews {
				require.EqualValues(e.t, 1, e.run(renew("01", ttl, token))[1])
			} else {
				require.EqualValues(e.t, 1, answer(e, acquire(reader("03"))))
				e.run(release("01", 0))
			}
			n, err := e.do("ZCARD", lockKey+":h").AsInt64()
			require.NoError(e.t, err)
			require.EqualValues(e.t, map[bool]int{true: 0, false: 2}[renews], n)
			left, err := e.do("PTTL", lockKey+":h").AsInt64()
			require.NoError(e.t, err)
			require.NotEqualValues(e.t, -1, left, "it expires")
			require.EqualValues(e.t, 0, answer(e, acquire(writer("04"))))
			e.run(release("01", 0))
			e.run(release("03", 0))
			require.EqualValues(e.t, 0, e.run(refresh("04"))[3], "02 still reads")
			require.EqualValues(e.t, 1, answer(e, release("02", 0)))
			require.EqualValues(e.t, 1, e.run(refresh("04"))[3])
			e.run(release("04", 0))
			e.onlyTokensStay()
		}
	})
}

// The whole queue comes back where it is larger than what one command takes.
func TestALargeIndexIsMadeAgain(t *testing.T) {
	const waiters = 2_500
	onServers(t, func(e *env) {
		e.loadAll()
		e.run(acquire(writer("01")))
		e.all(many(waiters, func(hold string) call { return acquire(writer(hold)) }))
		e.lose(":q")
		e.run(refresh("1000000"))
		n, err := e.do("ZCARD", lockKey+":q").AsInt64()
		require.NoError(e.t, err)
		require.EqualValues(e.t, waiters, n)
		require.Equal(e.t, fmt.Sprint(waiters), e.members("queue"))
	})
}

// abstains returns whether the master abstains, for about the quarantine.
func (e *env) abstains() bool {
	e.t.Helper()
	until, err := strconv.ParseInt(e.field(markerKey, "until"), 10, 64)
	require.NoError(e.t, err)
	return until > e.now().Add(5*time.Second).UnixMilli()
}

// A quarantine is no longer than its length, also where the clock was ahead when it began. Who looks learns that, and
// begins no term: that is for those that know that it is the server of that seat.
func TestAMarkerOfAClockThatWasAhead(t *testing.T) {
	onServers(t, func(e *env) {
		e.marker("join", "")
		require.True(e.t, e.abstains())
		e.setFields(markerKey, "until", e.now().Add(time.Hour).UnixMilli(), "run", strings.Repeat("a", 40))
		e.marker("look", "")
		require.True(e.t, e.abstains())
		until := strconv.FormatInt(e.now().Add(10*time.Second).UnixMilli(), 10)
		require.LessOrEqual(e.t, e.field(markerKey, "until"), until)
		require.NoError(e.t, e.do("HDEL", markerKey, "id").Error())
		e.marker("look", "")
		require.Empty(e.t, e.field(markerKey, "id"), "what was taken from another process comes back with its term only")
		run, terms := e.server.Info("server")["run_id"], "0: 2:"+strings.Repeat("b", 40)
		e.marker("succeed", terms)
		require.Equal(e.t, "0: 3:"+run, e.field(markerKey, "terms"), "after the last that anybody knows of")
		require.Equal(e.t, run, e.field(markerKey, "run"))
		id := e.field(markerKey, "id")
		time.Sleep(2 * time.Millisecond)
		e.marker("succeed", terms)
		require.Equal(e.t, id, e.field(markerKey, "id"), "it begins once")
	})
}

// A server that is out of memory refuses new locks, and still renews, refreshes, releases and hands off.
func TestFullMemoryKeepsWhoIsIn(t *testing.T) {
	onServers(t, func(e *env) {
		token := e.run(acquire(writer("01")))[1]
		e.run(acquire(reader("02")))
		e.run(acquire(reader("03")))
		e.run(acquire(writer("04").listening(deaf)))
		e.run(acquire(writer("05")))
		e.run(release("00", 0)) // every script is known before the memory is full
		e.run(renew("00", ttl, 1))
		e.run(refresh("02"))
		// Keys up to a limit would leave it to the server's buffers, which it gives back when it likes, whether the memory
		// is full.
		require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "1").Error())

		for _, refused := range []call{acquire(writer("09")), acquire(reader("09"))} {
			_, err := e.try(refused)
			refusal, ok := rueidis.IsRedisErr(err)
			require.True(e.t, ok, "memory is not full: %v", err)
			require.Contains(e.t, refusal.Error(), "OOM")
		}
		require.NotContains(e.t, strings.Join(e.dump()[lockKey], "\n"), "09=", "a refused acquire leaves nothing")

		for range 3 {
			require.EqualValues(e.t, 2, e.run(renew("01", ttl, token))[1])
		}
		require.EqualValues(e.t, 0, e.run(refresh("02", "03"))[3])
		require.EqualValues(e.t, 1, e.run(release("01", 0))[0])
		handed := e.run(refresh("02", "03"))
		require.EqualValues(e.t, 1, handed[3])
		require.EqualValues(e.t, 1, handed[6])
		require.Greater(e.t, handed[7], handed[4], "a grant minted under pressure is newer as any")
		require.EqualValues(e.t, 2, e.run(renew("02", ttl, handed[4]))[1])
		require.EqualValues(e.t, 1, e.run(release("02", 0))[0])
		require.EqualValues(e.t, 1, e.run(releaseAll("03", ttl))[0], "also with a tombstone, and past a dead waiter")
		require.EqualValues(e.t, 1, e.run(refresh("05"))[3])
		require.EqualValues(e.t, 0, e.run(refresh("04"))[3], "the dead one comes back to its place")
		require.EqualValues(e.t, 0, e.run(release("07", ttl))[0], "and for a hold that never came")
		require.EqualValues(e.t, 1, e.run(release("05", 0))[0])
		require.EqualValues(e.t, 1, e.run(release("04", 0))[0])
		_, err := e.try(on("m", "release", ulid("01"), ttl, 0))
		require.NoError(e.t, err, "and of a lock that never was")
	}, "--maxmemory-policy", "noeviction")
}

// A zset that lacks members is not rebuilt: a waiter learns at its next request what is done for the members.
func TestAnIndexThatLacksMembers(t *testing.T) {
	everywhere(t, func(e *env) {
		messages := e.subscribe(channel)
		e.run(acquire(reader("01").shared(1)))
		e.run(acquire(reader("02").shared(1)))
		require.NoError(e.t, e.do("ZREM", lockKey+":h", ulid("02")).Error())
		e.run(acquire(writer("03")))
		require.Equal(e.t, []string{ulid("01") + " wanted"}, e.heard(messages))
		require.EqualValues(e.t, 0, answer(e, acquire(writer("04"))))
		require.Empty(e.t, e.heard(messages), "there is none behind the first")
	})
	onServers(t, func(e *env) {
		e.run(acquire(writer("01")))
		e.run(acquire(reader("02")))
		e.run(acquire(reader("03")))
		require.NoError(e.t, e.do("ZREM", lockKey+":q", ulid("03")).Error())
		e.alone = true // as while the slot moves
		require.EqualValues(e.t, 1, answer(e, release("01", 0)))
		e.alone = false
		require.EqualValues(e.t, 1, e.run(refresh("02"))[3])
		require.EqualValues(e.t, 1, e.run(refresh("03"))[3], "it has entered with the next call that names all keys")
	})
}

// Where the records are lost too, a count of them keeps no other hold out.
func TestACountWithoutRecordsKeepsNoHoldOut(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01")))
		e.lose(":h")
		require.NoError(e.t, e.do("HDEL", lockKey, ulid("01")).Error())
		require.EqualValues(e.t, 1, answer(e, acquire(writer("02"))))
		require.EqualValues(e.t, 1, answer(e, release("02", 0)))
		e.onlyTokensStay()

		e.run(acquire(reader("01")))
		e.lose("")
		e.run(acquire(reader("02")))
		require.EqualValues(e.t, 1, answer(e, tryAcquire(writer("03").converting("02"))), "nor an index of them an upgrade")
	})
}

// A part of the write hold's details has a field of its own. It is not taken for a record, even if the meta has the
// form of one.
func TestMetaIsNoRecord(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, state := range []string{"q", "g"} {
			e.flushAll()
			hold := writer("01")
			hold.meta = ""
			fill := 64 - len(hold.details())
			hold.meta = strings.Repeat("x", fill) + state + " 9999999999999 0 1 w 3000 - b" + channel + " of nobody"
			e.run(acquire(hold))
			require.Equal(e.t, state+" 9999999999999 ", e.field(lockKey, "e")[:16])
			shown := e.run(inspect())
			require.Len(e.t, shown[3], 1, "holders")
			require.Empty(e.t, shown[4], "waiters")
			e.run(acquire(writer("02")))
			e.lose(":q")
			e.run(refresh("02"))
			require.Equal(e.t, "1", e.members("queue"))
			e.run(release("01", 0))
			require.Equal(e.t, ulid("02"), e.field(lockKey, "w")[29:55])
		}
	})
}

// The clock of a server may jump, from 1970 to now or back, so the times of a hold may have more or fewer digits.
func TestARenewalReadsATimeOfAnyLength(t *testing.T) {
	everywhere(t, func(e *env) {
		token := e.run(acquire(writer("01")))[1]
		w := e.field(lockKey, "w")
		e.setFields(lockKey, "w", w[:16]+"0000000010123"+w[29:])
		require.EqualValues(e.t, 0, e.run(renew("01", ttl, token))[1], "expired")
		e.setFields(lockKey, "w", w[:16]+"9999999969999"+w[29:])
		require.EqualValues(e.t, 1, e.run(renew("01", ttl, token))[1])
		require.Less(e.t, e.field(lockKey, "w")[16:29], "9999999969999")
		require.Equal(e.t, "9999999969999", e.begun())
	})
}
