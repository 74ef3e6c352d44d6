package scripts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

var votes = vote{proposal: 1, seen: setID}

// ahead is a vote with a proposal some microseconds ahead of the server's clock.
func (e *env) ahead(us int64) vote { return vote{proposal: e.now().UnixMicro() + us, seen: setID} }

// voting are the scripts that ask for a vote; the others work without one.
func voting() map[scripts.Name]call {
	return map[scripts.Name]call{
		scripts.Acquire: acquire(writer("01")), scripts.Join: join(reader("01").by("a")),
		scripts.Raise: raise("01", 5), scripts.Yield: yield("01", 5), scripts.Regain: regain(writer("01"), 5, 0),
	}
}

func TestMasterAbstains(t *testing.T) {
	everywhere(t, func(e *env) {
		for name, c := range voting() {
			require.Equal(e.t, []any{int64(4), int64(0), int64(0)}, e.run(votes.of(c))[:3], "%s without a marker", name)
		}
		require.Empty(e.t, e.dump())
		e.newMarker()
		token := e.run(votes.of(acquire(writer("01"))))[1]
		e.run(votes.of(acquire(writer("02"))))
		e.setFields(markerKey, "until", e.now().UnixMilli()+ttl)
		for name, c := range voting() {
			reply := e.run(votes.of(c))
			require.EqualValues(e.t, 4, reply[0], name)
			require.InDelta(e.t, ttl, reply[2], 10_000, name)
		}

		again := e.run(votes.of(refresh("01")))
		require.EqualValues(e.t, 0, again[3], "no waiter is told of a grant that may be from a snapshot")
		require.EqualValues(e.t, 2, e.run(votes.of(renew("01", ttl, token)))[1], "what stands is renewed, and somebody waits")
		require.EqualValues(e.t, 1, e.run(votes.of(release("01", 0)))[0], "and released")
		reply := e.run(votes.of(refresh("02")))
		require.EqualValues(e.t, 0, reply[3], "but nobody is let in")
		require.InDelta(e.t, claim, reply[1], 10_000)
		e.setFields(markerKey, "until", e.now().UnixMilli()+claim/2)
		require.InDelta(e.t, claim/2, e.run(votes.of(refresh("02")))[1], claim/4, "its master votes again before that")
		e.setFields(markerKey, "until", e.now().UnixMilli())
		if e.mini != nil {
			time.Sleep(time.Millisecond)
		}
		require.EqualValues(e.t, 1, e.run(votes.of(refresh("02")))[3], "before it votes again")
	})
}

// Whatever lets somebody in, or confirms what a client has, is a vote of the master. None is given to a client that has
// not seen the marker, nor while the master abstains or has no marker.
func TestWithoutAVoteNobodyIsLetIn(t *testing.T) {
	letIn := map[string]struct {
		expired bool // what the waiter is behind
		by      call
	}{
		"release":              {false, release("01", 0)},
		"release, a tombstone": {false, releaseAll("01", ttl)},
		"release of a waiter":  {true, release("03", 0)},
		"refresh":              {true, refresh("02")},
		"refresh of nobody":    {true, refresh()},
		"acquire":              {true, acquire(writer("04"))},
		"one attempt":          {true, tryAcquire(writer("04"))},
		"conversion":           {true, acquire(writer("04").converting("01"))},
		"join":                 {true, join(reader("04").by("a"))},
		"yield":                {true, yield("01", 5)},
		"regain, refused":      {true, regain(writer("05"), 5, 0)},
	}
	refusals := map[string]struct {
		seen   string
		marker []any
	}{
		"another marker": {"01JSET:older", []any{"until", 0}},
		"abstains":       {setID, []any{"until", "9999999999999"}},
		"no marker":      {setID, nil},
	}
	for path, p := range letIn {
		for why, r := range refusals {
			t.Run(path+", "+why, func(t *testing.T) {
				inFakeTime(t, func(e *env) {
					e.newMarker()
					e.run(votes.of(acquire(reader("01").lasting(1000))))
					e.run(votes.of(acquire(writer("02"))))
					e.run(votes.of(acquire(writer("03"))))
					e.run(votes.of(release("05", ttl)))
					if p.expired {
						e.pass(2 * time.Second)
					}
					heard := e.subscribe(channel)
					if r.marker == nil {
						require.NoError(e.t, e.do("DEL", markerKey).Error())
					} else {
						e.setFields(markerKey, r.marker...)
					}
					reply := e.run(vote{proposal: 1, seen: r.seen}.of(p.by))
					_, _, writes := e.counters(lockKey)
					require.Empty(e.t, writes)
					require.NoError(e.t, e.do("ZSCORE", lockKeys("n")[2], ulid("02")).Error(), "it waits yet")
					require.Empty(e.t, e.heard(heard))
					if name := p.by.script; name == scripts.Release || name == scripts.Refresh {
						require.EqualValues(e.t, 2, reply[2], "the client is to look at the marker")
					}
					e.newMarker()
					e.run(votes.of(p.by))
					require.Contains(e.t, e.field(lockKey, "w"), ulid("02"), "it could enter")
				})
			})
		}
	}
}

// A script that the server had to be sent whole compares the run id, whichever script it is. Where it is another one,
// the marker's id is taken away, and nobody's vote counts before the marker has been looked at.
func TestChangedRunIDTakesTheVoteAway(t *testing.T) {
	everyScript := voting()
	everyScript[scripts.Release] = release("01", 0)
	everyScript[scripts.Refresh] = refresh("01")
	everyScript[scripts.Renew] = renew("01", ttl, 5)
	check := vote{proposal: 1, seen: setID, check: 1}
	onServers(t, func(e *env) {
		for name, c := range everyScript {
			e.flushAll()
			e.newMarker()
			e.run(votes.of(c))
			require.Equal(e.t, setID, e.field(markerKey, "id"), "without check")
			for range 2 {
				e.run(check.of(c))
				require.Empty(e.t, e.field(markerKey, "id"), name)
				require.Equal(e.t, "run", e.field(markerKey, "run"), "%s: whether it belongs there is not known", name)
				require.EqualValues(e.t, 5, e.run(votes.of(acquire(writer("09"))))[0], "%s: nor does another vote count", name)
			}
		}
		e.newMarker()
		e.setFields(markerKey, "run", "")
		require.EqualValues(e.t, 1, e.run(check.of(acquire(writer("01"))))[0])
		require.Equal(e.t, setID, e.field(markerKey, "id"), "an unknown run id is no changed one")

		e.flushAll()
		e.newMarker()
		require.NoError(e.t, e.do("ACL", "SETUSER", "default", "-info").Error())
		require.EqualValues(e.t, 1, e.run(check.of(acquire(writer("01"))))[0], "INFO refused: nothing is known")
		require.Equal(e.t, setID, e.field(markerKey, "id"))
	})
	inFakeTime(t, func(e *env) { // miniredis does not know INFO server
		e.newMarker()
		require.EqualValues(e.t, 1, e.run(check.of(acquire(writer("01"))))[0])
	})
}

// One of several masters mints no less than the end of its last quarantine: what it may have forgotten was counted
// before that.
func TestProposalIsAFloor(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, of := range []request{writer("01"), reader("02")} {
			until := e.now().UnixMilli() - 1
			e.flushAll()
			e.newMarker()
			e.setFields(lockKey, "w", counter(7))
			e.setFields(markerKey, "until", until)
			require.Equal(e.t, until*1000, e.run(votes.of(acquire(of)))[1])
		}
	})
}

// A hold that has expired is not raised.
func TestRaise(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		for _, of := range []request{writer("01"), reader("02")} {
			token := e.run(votes.of(acquire(of)))[1].(int64)
			e.pass(2 * ttl * time.Millisecond)
			require.EqualValues(e.t, 0, answer(e, votes.of(raise(of.hold, token+30))))
		}
	})
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
		token(acquire(reader("01")))
		first := token(tryAcquire(writer("02").converting("01")))
		second := token(tryAcquire(writer("03").converting("01")))
		third := token(tryAcquire(writer("04").converting("01")))
		require.Less(e.t, first, second)
		require.Less(e.t, second, third)
		require.EqualValues(e.t, 0, answer(e, votes.of(raise("03", third))))
		require.EqualValues(e.t, 1, answer(e, votes.of(raise("04", third+10))))
	})
}

// A hold that has joined a writer is raised without the writer's token.
func TestARaiseOfAJoinedHoldKeepsTheWritersToken(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		token := e.run(votes.of(acquire(writer("01").by("a"))))[1].(int64)
		require.EqualValues(e.t, 1, e.run(votes.of(join(reader("02").by("a"))))[0])
		for range 2 {
			require.EqualValues(e.t, token+100, e.run(votes.of(raise("02", token+100)))[1])
		}
		require.EqualValues(e.t, 1, e.run(votes.of(renew("01", ttl, token)))[1])
		require.EqualValues(e.t, 1, e.run(votes.of(renew("02", ttl, token+100)))[1])
		require.EqualValues(e.t, 0, e.run(votes.of(raise("01", token+200)))[0], "no client waits for it")

		e.flushAll()
		e.newMarker()
		token = e.run(e.ahead(-5_000_000).of(acquire(writer("01").by("a"))))[1].(int64)
		require.EqualValues(e.t, 1, e.run(votes.of(raise("01", token+10)))[0])
		require.EqualValues(e.t, token+10, e.run(votes.of(join(reader("03").by("a"))))[1], "who joins has it too")
	})
}

// One that was passed over while another came to upgrade has lost its place to it: it asks anew, and is told so. Else
// each would wait for the other to leave.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	everywhere(t, func(e *env) {
		e.run(acquire(reader("01")))
		e.run(acquire(reader("02")))
		upgrade := acquire(writer("03").converting("01").listening("pnobody"))
		require.EqualValues(e.t, 0, answer(e, upgrade))
		e.run(release("02", 0)) // nobody hears of the grant
		require.EqualValues(e.t, 1, answer(e, acquire(reader("04"))))
		require.EqualValues(e.t, 0, answer(e, acquire(writer("05").converting("04"))))
		require.EqualValues(e.t, 2, e.run(refresh("03"))[3])
		require.EqualValues(e.t, 7, answer(e, upgrade))
	})
}

// A regain leaves a write that others have joined as it is, and a grant from before a loss of data.
func TestRegain(t *testing.T) {
	everywhere(t, func(e *env) {
		status := func(v vote, r request, token int64, trusted int) int64 {
			return e.run(v.of(regain(r, token, trusted)))[0].(int64)
		}
		e.newMarker()
		require.EqualValues(e.t, 1, status(votes, writer("01").by("a"), 100, 0))
		require.EqualValues(e.t, 100, e.run(votes.of(join(reader("02").by("a"))))[1])
		require.EqualValues(e.t, 0, status(votes, writer("01").by("a"), 99, 0), "others have joined it")

		e.flushAll()
		e.setFields(markerKey, "set", "01JSET", "run", "run", "id", setID, "until", e.now().UnixMilli()+ttl)
		require.EqualValues(e.t, 4, status(votes, writer("01"), 100, 0), "trust has run out")
		again := vote{proposal: 1, seen: "01JSET:older"}
		require.EqualValues(e.t, 5, status(again, writer("01"), 100, 1), "it has lost its data once more")
		require.EqualValues(e.t, 1, status(votes, writer("01"), 100, 1), "the master held it when it lost its data")
		require.EqualValues(e.t, 1, e.run(votes.of(renew("01", ttl, 100)))[1])
		require.EqualValues(e.t, 0, status(votes, writer("01"), 99, 1), "a grant from before the loss stays")
		require.EqualValues(e.t, 0, status(votes, writer("02"), 99, 1), "nobody waits")
	})
}

// counterBack is a grant of a master whose counter is ahead of its clock, and whether the end of its lease, or a
// regain, sets the counter back.
type counterBack struct {
	of    request
	ahead time.Duration
	then  func(*env)
	lease time.Duration // how far its token is ahead
	other int64         // is added to the token that the client knows
	back  bool
}

var countersBack = map[string]counterBack{
	"a write":                  {of: writer("01"), ahead: 3 * time.Second, back: true},
	"a shared write":           {of: writer("01").shared(9), ahead: 3 * time.Second, back: true},
	"a write of a named owner": {of: writer("01").by("a"), ahead: 3 * time.Second, back: true},
	"a read":                   {of: reader("01"), ahead: 3 * time.Second},
	"within a second":          {of: writer("01"), ahead: time.Second / 2},
	"another grant":            {of: writer("01"), ahead: 3 * time.Second, other: -1},
	"a lease that is ahead":    {of: writer("01"), ahead: 3 * time.Second, lease: 2 * time.Second},
	"an abstention": {of: writer("01"), ahead: 3 * time.Second, then: func(e *env) {
		e.setFields(markerKey, "until", e.now().Add(time.Minute).UnixMilli())
	}},
	"a write that is gone": {of: writer("01"), ahead: 3 * ttl * time.Millisecond, then: func(e *env) {
		e.pass(2 * ttl * time.Millisecond)
	}},
	"a write that is joined": {of: writer("01").by("a"), ahead: 3 * time.Second, then: func(e *env) {
		e.run(votes.of(join(reader("02").by("a"))))
	}},
}

// A counter that is ahead of the server's clock goes back to 1 s ahead of it, by the regain or the release of a lease
// that the clock allows, and that names the last grant here.
func TestACounterThatIsAheadOfTheClockGoesBack(t *testing.T) {
	for by, send := range map[string]func(r request, token, own int64) call{
		"regain":                 func(r request, token, own int64) call { return regainOf(r, token, own) },
		"release":                func(r request, token, own int64) call { return releaseOf(r, "0 0", token, own) },
		"release with a minimum": func(r request, token, own int64) call { return releaseOf(r, "2000 2000", token, own) },
	} {
		everywhere(t, func(e *env) {
			for name, c := range countersBack {
				what := by + " of " + name
				e.flushAll()
				e.newMarker()
				ahead := e.now().Add(c.ahead).UnixMicro()
				e.setFields(lockKey, "w", counter(ahead))
				own := e.run(votes.of(acquire(c.of)))[1].(int64)
				if c.then != nil {
					c.then(e)
				}
				token := e.now().Add(c.lease).UnixMicro()
				before := e.now().Add(time.Second).UnixMicro()
				e.run(votes.of(send(c.of, token, own+c.other)))
				after := e.now().Add(time.Second).UnixMicro()
				e.run(votes.of(send(c.of, token, own+c.other)))
				last, writes, _ := e.counters(lockKey)
				if !c.back {
					require.Equal(e.t, own, last, what)
					continue
				}
				require.GreaterOrEqual(e.t, last, before, what)
				require.LessOrEqual(e.t, last, after, what)
				require.Equal(e.t, last, writes, what)
				e.run(votes.of(release("01", 0)))
				e.pass(2 * time.Second)
				next := e.run(votes.of(acquire(writer("03"))))
				require.EqualValues(e.t, 1, next[0], what)
				require.Greater(e.t, next[1], last, what)
				require.Less(e.t, next[1], ahead, what)
			}
		})
	}
}

// The waiter that a release lets in gets a token from the counter that has gone back.
func TestAWaiterHasItsTokenFromACounterThatWentBack(t *testing.T) {
	everywhere(t, func(e *env) {
		e.newMarker()
		ahead := e.now().Add(time.Hour).UnixMicro()
		e.setFields(lockKey, "w", counter(ahead))
		own := e.run(votes.of(acquire(writer("01"))))[1].(int64)
		e.run(votes.of(acquire(writer("02"))))
		token := e.now().UnixMicro()
		e.run(votes.of(releaseOf(writer("01"), "0 0", token, own)))
		next := e.run(votes.of(acquire(writer("02"))))
		require.EqualValues(e.t, 1, next[0])
		require.Greater(e.t, next[1], token)
		require.Less(e.t, next[1], ahead)
	})
}

// A grant that came late has a larger token than the lease. It gets that of the lease, and keeps what else it has.
func TestRegainOfALateGrant(t *testing.T) {
	everywhere(t, func(e *env) {
		for _, of := range []request{writer("01").by("a"), reader("01").by("a"), writer("01").shared(9)} {
			e.flushAll()
			e.newMarker()
			e.run(votes.of(acquire(of)))
			e.run(votes.of(acquire(writer("02"))))
			since := func() string {
				if of.mode == "w" {
					return e.begun()
				}
				return strings.Fields(e.field(lockKey, ulid("01")))[3]
			}
			e.pass(time.Second)
			counted, begun := e.field(lockKey, "w")[:16], since()
			for range 2 {
				require.EqualValues(e.t, 1, e.run(votes.of(regain(of, 5, 0)))[0])
			}
			require.EqualValues(e.t, 2, e.run(votes.of(renew("01", ttl, 5)))[1], "and one waits")
			require.Equal(e.t, []string{counted, begun}, []string{e.field(lockKey, "w")[:16], since()})
			if of.owner == "a" {
				require.EqualValues(e.t, 5, e.run(votes.of(join(reader("03").by("a"))))[1])
			}
		}

		// Who is let in by it, behind a waiter that is dead, has the lock since now, and not since that grant.
		e.flushAll()
		e.newMarker()
		e.run(votes.of(acquire(reader("01"))))
		e.run(votes.of(acquire(writer("02").waiting(1_000))))
		e.run(votes.of(acquire(reader("03").waiting(4 * ttl))))
		e.pass(2 * time.Second)
		require.EqualValues(e.t, 1, e.run(votes.of(regain(reader("01"), 5, 0)))[0])
		since := func(hold string) string { return strings.Fields(e.field(lockKey, ulid(hold)))[3] }
		require.Less(e.t, since("01"), since("03"))
	})
}

// marker calls marker.lua for the second seat of three, with a quarantine of 10 s.
func (e *env) marker(purpose, terms string) (reply []any) {
	e.t.Helper()
	args := []string{purpose, "2", "rules", "S", "1", "a b c", "10000", terms, ""}
	return e.run(call{scripts.Marker, []string{markerKey}, args})
}

// A master whose marker was written by a user who may not run INFO learns its run id from the first user who may.
func TestAMarkerOfAUserWithoutINFO(t *testing.T) {
	onServers(t, func(e *env) {
		run := e.server.Info("server")["run_id"]
		require.NoError(e.t, e.do("ACL", "SETUSER", "default", "-info").Error())
		require.Equal(e.t, "", e.marker("look", "")[2], "no marker so far")
		e.marker("join", "")
		until := e.field(markerKey, "until")
		require.Empty(e.t, e.field(markerKey, "run"))
		e.marker("note", "")
		require.Empty(e.t, e.field(markerKey, "run"), "not known yet")
		require.NoError(e.t, e.do("ACL", "SETUSER", "default", "+info").Error())
		e.marker("look", "")
		require.Empty(e.t, e.field(markerKey, "run"), "a look writes nothing")
		e.marker("note", "")
		require.Equal(e.t, run, e.field(markerKey, "run"))
		require.Equal(e.t, "0:"+" 1:"+run, e.field(markerKey, "terms"))
		require.Equal(e.t, until, e.field(markerKey, "until"), "that is no reason to abstain")
	})
}

// A renewal of a user who may not read the lock fails as a whole: its leases are not gone.
func TestARefusedRenewalIsAnError(t *testing.T) {
	onServers(t, func(e *env) {
		for kind, read := range map[string]string{"w": "hget", "s": "hget", "r": "hmget"} {
			r := writer("01")
			if kind == "r" {
				r = reader("01")
			}
			renewal := renew("01", ttl, e.run(acquire(r))[1])
			renewal.args[2] = kind
			require.NoError(e.t, e.do("ACL", "SETUSER", "default", "-"+read).Error())
			_, err := e.try(renewal)
			require.Error(e.t, err)
			require.NoError(e.t, e.do("ACL", "SETUSER", "default", "+"+read).Error())
			require.EqualValues(e.t, 1, e.run(renewal)[1])
			e.run(release("01", 0))
		}
	})
}

// Ping reads the marker of a master that decides alone without a layout: then nothing is written.
func TestAMarkerIsReadWithoutAChange(t *testing.T) {
	everywhere(t, func(e *env) {
		read := func(layout string) any {
			return e.run(call{scripts.Marker, []string{markerKey}, []string{"single", layout}})[1]
		}
		require.Equal(e.t, "", read(""))
		require.Empty(e.t, e.dump())
		require.Equal(e.t, "2", read("2"))
		require.Equal(e.t, "2", read(""))
	})
}
