package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/scripts"
)

// pair is a hold of a lock.
type pair struct{ name, hold string }

// group is a call that releases holds and then acquires others, as writers with this metadata.
func group(releases, acquires []pair, meta string) call {
	c := on("n", scripts.Group, len(releases), request{mode: "w", claim: claim, meta: meta}.details())
	c.keys = nil
	for _, p := range releases {
		c.keys, c.args = append(c.keys, lockKeys(p.name)[0]), append(c.args, ulid(p.hold))
	}
	for _, p := range acquires {
		r := request{hold: p.hold, mode: "w", ttl: ttl, claim: claim, meta: meta}
		c.keys, c.args = append(c.keys, lockKeys(p.name)[0]), append(c.args, acquire(r).args[0])
	}
	return c
}

// of turns the group into one on one of several masters, with these proposals of the acquires.
func (v vote) ofGroup(c call, proposals ...int64) call {
	v.proposal = 0
	c = v.of(c)
	for _, p := range proposals {
		c.args = append(c.args, padded(p))
	}
	return c
}

// lines runs a group and returns what became of its members: the status of each, or "".
func (e *env) lines(c call) (all []string) {
	e.t.Helper()
	for _, line := range e.run(c) {
		status, _, _ := strings.Cut(line.(string), " ")
		if len(status) > 1 { // behind.lua
			status = status[:1]
		}
		all = append(all, status)
	}
	return all
}

func fieldsOf(line any) []any {
	fields, _ := scriptfuzz.Fields(line)
	return fields
}

// A group does what its members do alone: the same fields, the same replies.
func TestAGroupDoesWhatItsMembersDoAlone(t *testing.T) {
	inFakeTime(t, func(e *env) {
		for _, meta := range []string{"short", strings.Repeat("long", 30)} {
			r := request{hold: "01", mode: "w", ttl: ttl, claim: claim, meta: meta}
			single := e.run(acquire(r))
			want := e.dump()
			require.EqualValues(e.t, 1, answer(e, release("01", 0)))
			free := e.dump()
			e.flushAll()
			reply, err := e.try(group(nil, []pair{{"n", "01"}}, meta))
			require.NoError(e.t, err)
			require.Equal(e.t, []any{fmt.Sprint(single...)}, []any{fmt.Sprint(fieldsOf(reply.([]any)[0])...)})
			require.Equal(e.t, want, e.dump())
			require.Equal(e.t, []string{"1"}, e.lines(group([]pair{{"n", "01"}}, nil, meta)))
			require.Equal(e.t, free, e.dump())
			e.flushAll()
		}
	})
}

// queueing makes the acquires of a group queue by arrival.
func queueing(c call) call {
	c.args[1] = fmt.Sprint(c.args[1], "a")
	return c
}

// A group queues a writer behind another one as the single script does, and once.
func TestAGroupQueuesAsItsMembersDoAlone(t *testing.T) {
	inFakeTime(t, func(e *env) {
		for _, holder := range []request{writer("01"), writer("01").shared(8)} {
			e.run(acquire(holder))
			single := []any{e.run(acquire(writer("02"))), e.run(acquire(writer("03")))}
			want := e.dump()
			e.flushAll()
			e.run(acquire(holder))
			for i, hold := range []string{"02", "03"} {
				reply, err := e.try(queueing(group(nil, []pair{{"n", hold}}, "meta of it")))
				require.NoError(e.t, err)
				got, _ := scriptfuzz.Fields(reply.([]any)[0])
				require.Equal(e.t, single[i], got)
			}
			require.Equal(e.t, want, e.dump())
			require.Equal(e.t, []string{""}, e.lines(queueing(group(nil, []pair{{"n", "02"}}, ""))), "twice")
			require.Equal(e.t, []string{""}, e.lines(group(nil, []pair{{"n", "04"}}, "")), "a single attempt")
			e.flushAll()
		}
	})
}

// What is not the common case is left as it is, with a key of another type among the keys, and releases come first.
func TestAGroupLeavesWhatIsNotTheCommonCase(t *testing.T) {
	everywhere(t, func(e *env) {
		for name, c := range map[string]call{
			"mine": acquire(writer("01")), "other": acquire(writer("02")), "owned": acquire(writer("03").by("04")),
			"read": acquire(reader("05")), "awaited": acquire(writer("06")), "buried": release("07", ttl),
		} {
			e.name = name
			e.run(c)
		}
		e.name = "awaited"
		e.run(acquire(writer("08")))
		e.name = ""
		require.NoError(e.t, e.do("SET", lockKeys("alien")[0], "text").Error())
		before := e.dump()
		all := []pair{{"alien", "01"}, {"other", "01"}, {"owned", "03"}, {"read", "05"}, {"awaited", "06"}, {"free", "01"}}
		left := []string{"", "", "", "", "", ""}
		require.Equal(e.t, left, e.lines(group(all, nil, "")))
		all = []pair{{"alien", "09"}, {"other", "09"}, {"other", "02"}, {"read", "09"}, {"awaited", "08"}, {"buried", "07"}}
		require.Equal(e.t, left, e.lines(group(nil, all, "")))
		after := e.dump()
		for key := range before {
			require.Equal(e.t, before[key][:len(before[key])-1], after[key][:len(after[key])-1])
		}
		e.name = "unqueued"
		e.run(acquire(writer("02")))
		e.name = ""
		require.NoError(e.t, e.do("SET", lockKeys("unqueued")[0]+":q", "text").Error())
		all = append(all[:0:0], pair{"alien", "09"}, pair{"read", "09"}, pair{"buried", "09"}, pair{"unqueued", "09"})
		require.Equal(e.t, []string{"", "", "", "", "1", "0"}, e.lines(queueing(
			group(nil, append(all, pair{"last", "09"}, pair{"other", "10"}), ""))))
		e.setFields(lockKeys("odd")[0], "w", "text")
		acquires := []pair{{"mine", "09"}, {"alien", "09"}, {"odd", "09"}, {"new", "09"}}
		c := group([]pair{{"mine", "01"}, {"alien", "01"}}, acquires, "")
		require.Equal(e.t, []string{"1", "", "1", "", "", "1"}, e.lines(c))
		require.Equal(e.t, []string{"", "", "", "", "", ""}, e.lines(c), "twice")
		e.name = "mine"
		require.EqualValues(e.t, 2, answer(e, tryAcquire(writer("10"))))
	})
}

// A server without memory refuses a group as a whole, unless a release has made room.
func TestAGroupOnAFullServer(t *testing.T) {
	onServers(t, func(e *env) {
		e.run(acquire(writer("01")))
		require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "1").Error())
		before := e.dump()
		_, err := e.try(group([]pair{{"n", "02"}}, []pair{{"a", "03"}, {"b", "03"}}, ""))
		require.ErrorContains(e.t, err, "OOM")
		require.Len(e.t, e.dump(), len(before))
		_, err = e.try(set("none", pair{"a", "03"}, pair{"b", "03"}))
		require.ErrorContains(e.t, err, "OOM")
		require.Len(e.t, e.dump(), len(before))
		require.Equal(e.t, []string{"1", "1"}, e.lines(group([]pair{{"n", "01"}}, []pair{{"a", "03"}}, "")))
	})
}

// One of several masters votes once for all members, and mints what each of them proposes, within its bounds.
func TestAGroupOnOneOfSeveralMasters(t *testing.T) {
	everywhere(t, func(e *env) {
		now := e.now().UnixMicro()
		acquires := []pair{{"a", "01"}, {"b", "01"}, {"c", "01"}, {"d", "01"}}
		c := group([]pair{{"held", "02"}}, acquires, strings.Repeat("long", 30))
		proposals := []int64{now + 500_000, now - 3_600_000_000, now + 3_600_000_000, now + 500_000}
		nothing := []string{"", "", "", "", ""}
		require.Equal(e.t, nothing, e.lines(votes.ofGroup(c, proposals...)), "no marker")
		e.newMarker()
		e.name = "held"
		e.run(acquire(writer("02")))
		e.name = ""
		require.Equal(e.t, nothing, e.lines(vote{seen: "another"}.ofGroup(c, proposals...)))
		e.setFields(markerKey, "until", now/1000+3_600_000)
		require.Equal(e.t, nothing, e.lines(vote{seen: setID}.ofGroup(c, proposals...)), "abstains")
		e.setFields(markerKey, "until", now/1000-1)
		e.setFields(lockKeys("d")[0], "w", counter(now+700_000))
		reply, err := e.try(vote{seen: setID}.ofGroup(c, proposals...))
		require.NoError(e.t, err)
		token := func(i int) (v int64) {
			_, err := fmt.Sscanf(reply.([]any)[i].(string), "1 %d", &v)
			require.NoError(e.t, err, "%v", reply)
			return v
		}
		require.Equal(e.t, now+500_000, token(1), "as proposed")
		require.GreaterOrEqual(e.t, token(2), now, "no counter: the clock")
		require.Less(e.t, token(3), now+3_000_000_000, "no further ahead of the clock than a second")
		require.Equal(e.t, now+700_001, token(4), "beyond the counter")
		_, writes, _ := e.counters(lockKeys("d")[0])
		require.Equal(e.t, token(4), writes)
		require.Equal(e.t, "nglo", e.field(lockKeys("d")[0], "e")[:4])
	})
}

// set is a group of acquires, of which none run, or those before the first lock that another writer has.
func set(runs string, acquires ...pair) call {
	c := group(nil, acquires, "")
	c.args[1] = runs
	return c
}

// A set takes nothing for the sake of a lock that another writer has, or what comes before it. It refuses that lock as
// the single script does, and leaves what is not the common case.
func TestASetTakesAllOrNone(t *testing.T) {
	everywhere(t, func(e *env) {
		at := func(name string, c call) []any {
			e.name = name
			defer func() { e.name = "" }()
			return e.run(c)
		}
		held := writer("02")
		held.meta = strings.Repeat("long", 30)
		for _, name := range []string{"held", "next", "dead", "buried", "awaited"} {
			at(name, acquire(held))
		}
		e.setFields(lockKeys("dead")[0], "w", padded(7)+"0000000000001"+ulid("02")+"       11")
		at("buried", release("03", ttl))
		at("awaited", acquire(writer("01")))
		at("read", acquire(reader("03")))
		require.NoError(e.t, e.do("SET", lockKeys("alien")[0], "text").Error())
		uncommon := []pair{{"dead", "01"}, {"buried", "01"}, {"awaited", "01"}, {"read", "01"}, {"alien", "01"}}
		left := []string{"", "", "", "", ""}

		all := append(append([]pair{{"a", "01"}}, uncommon...), pair{"held", "01"}, pair{"b", "01"}, pair{"next", "01"})
		before := e.dump()
		for i, line := range e.run(set("none", all...)) {
			got, _ := scriptfuzz.Fields(line)
			want := []any{int64(2), int64(0), int64(0), got[3], "-", int64(0), int64(0), "-"}
			if all[i].name == "held" {
				want = at("held", tryAcquire(writer("01")))
				for _, since := range []int{2, 3, 5, 6} {
					want[since] = got[since]
				}
				require.Positive(e.t, got[2])
				require.Equal(e.t, got[2], got[5])
			}
			require.Equal(e.t, want, got, all[i].name)
		}
		require.Len(e.t, e.dump(), len(before), "nothing is written")

		require.Equal(e.t, append(left, "1"), e.lines(set("none", append(uncommon, pair{"c", "01"})...)))
		want := append(append([]string{"1"}, left...), "2", "2", "2")
		require.Equal(e.t, want, e.lines(set("before", all...)))
		// A set that is sent again may find that another writer has a lock that it had. What it still has is left.
		again := []pair{{"a", "01"}, {"held", "01"}, {"next", "02"}, {"b", "01"}}
		for _, runs := range []string{"none", "before"} {
			require.Equal(e.t, []string{"", "2", "", "2"}, e.lines(set(runs, again...)))
		}
	})
}
