package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// migration is an environment whose lock lies in a slot that moves.
type migration struct{ *env }

// While a slot is on its way to another node of a Cluster, some keys of a lock may have moved and others not. Whatever
// has: nobody enters beside a hold that stands, no request does half of its work, and afterwards the lock is as it was.
func TestScriptsOnAMovingSlot(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	testredis.Require(t)
	cluster := testredis.StartCluster(t, testredis.Binaries()[0], 0)
	option := cluster.Option()
	option.DisableCache = true
	client := expect.NoError(rueidis.NewClient(option)).In(t)
	defer client.Close()
	for what, state := range movingStates {
		for moved := range 1 << len(state.keys) {
			e := &migration{&env{client: client, name: fmt.Sprint(what, moved)}} // each has a slot of its own
			keys := lockKeys(e.name)
			var gone []string
			for i, key := range state.keys {
				if moved>>i&1 == 1 {
					gone = append(gone, keys[key])
				}
			}
			t.Run(fmt.Sprintf("%s, moved %q", what, gone), func(t *testing.T) {
				e.t = t
				for _, c := range state.before {
					e.run(c)
				}
				for _, key := range state.keys {
					require.EqualValues(t, 1, expect.NoError(cluster.Command("EXISTS", keys[key])).In(t), keys[key])
				}
				slot := cluster.Slot(keys[0])
				move := cluster.BeginMove(slot, cluster.Another(cluster.Owner(slot)))
				for _, key := range gone {
					move.Key(key)
				}
				e.alone = true
				state.during(e, gone)
				move.End()
				e.alone = false
				state.after(e)
			})
		}
	}
}

type movingState struct {
	keys   []int // those that there are, as in lockKeys
	before []call
	during func(e *migration, gone []string)
	after  func(e *migration)
}

var movingStates = map[string]movingState{
	"held by a writer": {
		keys:   []int{0},
		before: []call{acquire(writer("01"))},
		during: func(e *migration, gone []string) {
			e.answers(2, tryAcquire(writer("02")))
			e.answers(2, tryAcquire(reader("03")))
			e.keeps("01", writer("01"))
			e.mayWait(acquire(writer("04")))
			e.mayWait(release("04", ttl))
			e.mayWait(join(reader("06").by("a")))
			e.mayWait(breaks("07"))
			if len(gone) == 0 { // the old node may have no new key
				detached := mark("01", e.token("01", writer("01")))
				e.answers(1, detached)
				e.refuses(adopt(writer("08"), "01", detached.args[4]))
				e.refuses(join(reader("06").by("a")))
				e.refuses(breaks("07"))
			}
		},
		after: func(e *migration) {
			e.keeps("01", writer("01"))
			e.answers(0, breaks("07"))
			e.answers(1, release("01", 0))
			e.answers(1, acquire(writer("05")))
			e.answers(1, release("05", 0))
		},
	},
	"held by readers": {
		keys:   []int{0, 1},
		before: []call{acquire(reader("01")), acquire(reader("02"))},
		during: func(e *migration, gone []string) {
			whole := len(gone) != 1
			e.mayWait(tryAcquire(writer("03")))
			e.mayWait(acquire(writer("04")))
			if whole {
				e.answers(2, tryAcquire(writer("03")))
				e.keeps("01", reader("01"))
				e.answers(1, release("02", 0))
			} else {
				e.mayWait(tryAcquire(reader("05")))
				e.mayWait(renew("01", ttl, e.token("01", reader("01"))))
				e.mayWait(release("02", 0))
			}
			e.mayWait(release("04", 0))
			e.mayWait(release("05", 0))
		},
		after: func(e *migration) {
			e.keeps("01", reader("01"))
			e.run(release("02", 0))
			e.run(release("04", 0))
			e.run(release("05", 0))
			e.answers(2, tryAcquire(writer("06")))
			e.answers(1, release("01", 0))
			e.answers(1, tryAcquire(writer("06")))
			e.answers(1, release("06", 0))
		},
	},
	"a writer and those who wait": {
		keys:   []int{0, 2},
		before: []call{acquire(writer("01")), acquire(writer("02")), acquire(reader("03"))},
		during: func(e *migration, gone []string) {
			e.keeps("01", writer("01"))
			e.mayWait(refresh("02", "03"))
			e.mayWait(acquire(reader("04")))
			if len(gone) == 1 {
				e.refuses(release("01", 0))
				e.keeps("01", writer("01"))
			}
		},
		after: func(e *migration) {
			e.keeps("01", writer("01"))
			e.answers(1, release("01", 0))
			e.answers(1, refresh("02"))
			e.answers(1, release("02", 0))
			e.answers(1, refresh("03"))
			e.answers(1, release("03", 0))
			e.run(release("04", 0))
		},
	},
	"writers who wait, then a reader": {
		keys:   []int{0, 2},
		before: []call{acquire(writer("01")), acquire(writer("02")), acquire(writer("03")), acquire(reader("04"))},
		during: func(e *migration, gone []string) {
			if len(gone) == 1 {
				e.refuses(release("01", 0))
				return
			}
			e.answers(1, release("01", 0)) // writers follow each other without the readers' key
			e.keeps("02", writer("02"))
			e.answers(1, release("02", 0))
			e.keeps("03", writer("03"))
			e.answers(1, release("03", 0))
			e.answers(2, tryAcquire(writer("05"))) // the reader is the next, and has to wait for it
		},
		after: func(e *migration) {
			e.run(release("01", 0))
			e.run(release("02", 0))
			e.run(release("03", 0))
			e.run(refresh("04"))
			e.answers(2, tryAcquire(writer("05")))
			e.answers(1, release("04", 0))
			e.answers(1, tryAcquire(writer("05")))
			e.answers(1, release("05", 0))
		},
	},
	"a tombstone before the first grant": {
		keys:   []int{0, 3},
		before: []call{releaseAll("02", ttl)},
		during: func(e *migration, gone []string) {
			if len(gone) == 2 {
				e.answers(3, acquire(writer("02")))
				e.answers(1, acquire(writer("03")))
				e.answers(1, release("03", 0))
				e.answers(3, acquire(writer("02")))
				return
			}
			for range 2 { // nothing of a request stays, or the second one would find it
				e.refuses(acquire(writer("02")))
				e.refuses(acquire(writer("03").by("a")))
				e.refuses(acquire(reader("02")))
			}
		},
		after: func(e *migration) {
			e.answers(3, acquire(writer("02")))
			e.answers(1, acquire(writer("03")))
			e.answers(3, acquire(writer("02")))
			e.answers(1, release("03", 0))
		},
	},
	"held beside a tombstone": {
		keys:   []int{0, 3},
		before: []call{acquire(writer("01")), release("02", ttl)},
		during: func(e *migration, gone []string) {
			e.keeps("01", writer("01"))
			if len(gone) == 1 {
				e.refuses(acquire(writer("02")))
				e.refuses(acquire(writer("03")))
			}
		},
		after: func(e *migration) {
			e.answers(3, acquire(writer("02")))
			e.answers(1, release("01", 0))
		},
	},
	"free": {
		keys:   []int{0},
		before: []call{acquire(writer("01")), release("01", 0)},
		during: func(e *migration, gone []string) {
			e.answers(1, tryAcquire(writer("02")))
			e.keeps("02", writer("02"))
			e.answers(1, release("02", 0))
			e.mayWait(tryAcquire(reader("03")))
			e.mayWait(release("03", ttl))
		},
		after: func(e *migration) {
			e.run(release("03", 0))
			e.answers(1, tryAcquire(writer("04")))
			e.answers(1, release("04", 0))
		},
	},
}

// answers requires that the request is carried out, with that status.
func (e *migration) answers(want int64, c call) {
	e.t.Helper()
	require.Equal(e.t, want, status(c, e.run(c)), "%s %q", c.script, c.args)
}

// refuses requires that the request is put off, and has done nothing.
func (e *migration) refuses(c call) {
	e.t.Helper()
	_, err := e.try(c)
	require.Error(e.t, err, "%s %q", c.script, c.args)
	require.True(e.t, strings.HasPrefix(err.Error(), "TRYAGAIN "), "%s %q: %v", c.script, c.args, err)
}

// mayWait requires that the request is carried out without a grant beside another's, or put off.
func (e *migration) mayWait(c call) {
	e.t.Helper()
	if _, err := e.try(c); err != nil {
		require.True(e.t, strings.HasPrefix(err.Error(), "TRYAGAIN "), "%s %q: %v", c.script, c.args, err)
	}
}

// keeps requires that the hold stands: asked for again it is answered as granted, and renewed.
func (e *migration) keeps(hold string, r request) {
	e.t.Helper()
	c := renew(hold, ttl, e.token(hold, r))
	require.Contains(e.t, []int64{1, 2}, status(c, e.run(c)), "%s %q", c.script, c.args)
}

// token returns the token of a hold that stands, as its lock shows it.
func (e *migration) token(hold string, r request) (token int64) {
	e.t.Helper()
	field, at := "w", 0
	if r.mode == "r" {
		field, at = ulid(hold), 2
	}
	get := e.client.B().Hget().Key(lockKeys(e.name)[0]).Field(field).Build()
	text, err := e.client.Do(e.t.Context(), get).ToString()
	require.NoError(e.t, err)
	if r.mode == "w" {
		text = text[:16]
	}
	token, err = strconv.ParseInt(strings.Fields(text)[at], 10, 64)
	require.NoError(e.t, err)
	return token
}

// by is who breaks holds in these tests, and why.
const by = "3:ops it is stuck"

func breaks(hold string) call    { return on("n", scripts.Break, ulid(hold), 0, claim, by) }
func breaksNow(hold string) call { return on("n", scripts.Break, ulid(hold), 1, claim, by) }

// A hold that is broken and expires does not come back by a late request of its process, and what it does not have any
// more another client gets. The same is true of a hold that a master does not have when it is broken there.
func TestALateRequestOfABrokenHold(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		for i, of := range []request{writer("01"), reader("02"), writer("03"), reader("04")} {
			token := e.run(votes.of(acquire(of)))[1].(int64)
			if gone := i >= 2; gone {
				e.run(votes.of(release(of.hold, 0)))
				require.EqualValues(e.t, 0, e.run(votes.of(breaks(of.hold)))[0])
			} else {
				require.EqualValues(e.t, 1, e.run(votes.of(breaks(of.hold)))[0])
				e.pass(ttl * time.Millisecond)
				require.EqualValues(e.t, 0, e.run(votes.of(breaks("06")))[0], "removes what has expired")
			}
			require.EqualValues(e.t, 0, e.run(votes.of(regain(of, token, 1)))[0])
			require.Equal(e.t, by, e.run(votes.of(renew(of.hold, ttl, token)))[1])
			reply := e.run(votes.of(acquire(of)))
			require.EqualValues(e.t, 3, reply[0])
			require.Equal(e.t, by, reply[4])
			require.EqualValues(e.t, 0, e.run(votes.of(breaks(of.hold)))[0], "gone")
			require.EqualValues(e.t, 1, e.run(votes.of(tryAcquire(writer("05"))))[0])
			e.run(votes.of(release("05", 0)))
			e.pass(2 * claim * time.Millisecond)
			require.EqualValues(e.t, 0, e.run(votes.of(breaks("06")))[0])
			require.NotContains(e.t, e.dump()[lockKey], ulid(of.hold), "the tombstone has expired")
		}
	})
}

// adopt is the request of a hold that replaces a detached one with this token, in its mode.
func adopt(r request, from string, token any) call {
	c := tryAcquire(r.converting(from))
	c.args = append(c.args, texts([]any{token, secret})...)
	return c
}

// Only the very hold is adopted: a lock that is free, or in other hands, is not.
func TestOnlyWhatWasDetachedIsAdopted(t *testing.T) {
	everywhere(t, func(e *env) {
		require.EqualValues(e.t, 3, answer(e, adopt(writer("02"), "01", 5)), "free")
		for _, of := range []request{writer("01"), reader("01")} {
			other := writer("02")
			other.mode = of.mode
			detached := func() int64 {
				token := e.run(acquire(of))[1].(int64)
				require.EqualValues(e.t, 1, e.run(mark("01", token))[1])
				return token
			}
			token := e.run(acquire(of))[1].(int64)
			require.EqualValues(e.t, 3, answer(e, adopt(other, "01", token)), "not detached")
			token = detached()
			for _, forged := range []int64{token - 1, token + 1, 0} {
				require.EqualValues(e.t, 3, answer(e, adopt(other, "01", forged)))
			}
			for _, forged := range []string{"", "of another ticket", wire.MarkOf(secret)} {
				c := adopt(other, "01", token)
				c.args[len(c.args)-1] = forged
				require.EqualValues(e.t, 3, answer(e, c), "another secret")
			}
			c := adopt(other, "01", token)
			c.args = c.args[:len(c.args)-1]
			require.EqualValues(e.t, 3, answer(e, c), "no secret")
			require.EqualValues(e.t, 3, answer(e, adopt(other, "03", token)))
			e.run(release("01", 0))
			require.EqualValues(e.t, 3, answer(e, adopt(other, "01", token)), "released")

			token = detached()
			e.run(endHold("01", 0, ttl, ttl))
			require.EqualValues(e.t, 3, answer(e, adopt(other, "01", token)), "kept until its minimum")
			e.run(release("01", 0))

			token = detached()
			e.run(breaks("01"))
			require.Equal(e.t, by, e.run(adopt(other, "01", token))[4], "broken")
			e.run(release("01", 0))
			detached()
			e.run(breaksNow("01"))
			require.Equal(e.t, by, e.run(adopt(other, "01", token))[4], "broken at once")
			e.pass(2 * ttl * time.Millisecond)
			e.run(refresh())
		}
		e.onlyTokensStay()
	})
}
