package wire_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

func TestArguments(t *testing.T) {
	for script, tt := range map[scripts.Name]struct {
		args []string
		want string
	}{
		scripts.Acquire: {
			wire.Acquire{
				Hold: "h", TTL: "40000", Order: wire.NoQueue, Details: "d", Adopts: wire.Adoption{Token: 7, Secret: "s"},
			}.Args(nil), "h,40000,0,d,7,s",
		},
		scripts.Join: {
			wire.Join{Hold: "h", Owner: "o", Mode: fencing.Read, TTL: "40000", Details: "d", Token: 7}.Args(nil),
			"h,o,r,40000,d,7",
		},
		scripts.Raise: {wire.Raise{Hold: "h", Token: fencing.MaxToken}.Args(nil), "h,9007199254740991"},
		scripts.Yield: {wire.Yield{Hold: "h", Token: 7}.Args(nil), "h,7"},
		scripts.Regain: {
			wire.Regain{Hold: "h", TTL: "40000", Token: 7, Details: "d", Trusted: true}.Args(nil), "h,40000,7,d,1",
		},
		scripts.Renew: {wire.Renew{{Key: "k:h", Hold: "h", TTL: "40000", Token: 7}}.Args(), "h,40000,7"},
		scripts.Refresh: {
			wire.Refresh{Route: wire.Published("c")}.Args(nil), "pc",
		},
		scripts.Release: {wire.Release{Hold: "h", Tombstone: wire.Tombstone{TTL: "60000"}}.Args(nil), "h,60000,0"},
	} {
		require.Equal(t, tt.want, strings.Join(tt.args, ","), script)
		require.Len(t, tt.args, fixedArguments(t, script)-1, "%s: all but the vote", script)
	}
	require.Equal(t, []string{"h", "40000", "h", "d"}, wire.Acquire{
		Hold: "h", TTL: "40000", Order: wire.ByHold, Details: "d",
	}.Args(nil))
	mark := wire.MarkOf("s")
	require.Equal(t, "a0f1490a20d0211c997b44bc357e1972deab8ae3", mark)
	require.Equal(t, []string{"h", "40000", "7", mark}, wire.Renew{{Hold: "h", TTL: "40000", Token: 7, Mark: mark}}.Args())
	require.Equal(t, []string{"h"}, wire.Release{Hold: "h"}.Args(nil), "the rest is as if it were there")
	require.Equal(t, []string{"h", "0", "0", "2000 1000"}, wire.Release{
		Hold: "h", Minimum: wire.Minimum{Least: 2 * time.Second, Rest: time.Second},
	}.Args(nil))
	require.Equal(t, []string{"h", "60000", "1", "i", "j"}, wire.Release{
		Hold: "h", Tombstone: wire.Tombstone{TTL: "60000", Several: true}, Others: []string{"i", "j"},
	}.Args(nil))
	require.Equal(t, []string{"-", "h"}, wire.Refresh{Holds: []string{"h"}}.Args(nil))
}

var numbered = regexp.MustCompile(`(?:^|[ ,;])(\d+) `)

// fixedArguments returns how many arguments the header of a script numbers, the vote included.
func fixedArguments(t *testing.T, script scripts.Name) (n int) {
	_, header, ok := strings.Cut(scripts.Source(script), "-- ARGV ")
	require.True(t, ok)
	header, _, ok = strings.Cut(header, "-- Reply")
	require.True(t, ok)
	if script == scripts.Renew { // "1 as in vote.lua, then for every lease: hold, TTL ms, token"
		return 1 + strings.Count(header, ",")
	}
	header = strings.ReplaceAll(header, "--", "")
	for strings.Contains(" "+strings.Join(strings.Fields(header), " "), " "+strconv.Itoa(n+1)+" ") {
		n++
	}
	require.Regexp(t, numbered, header)
	return n
}

func TestArgumentsStayInTheCallersArray(t *testing.T) {
	join := wire.Join{Hold: hold, Owner: other, Mode: fencing.Write, TTL: "40000", Details: "d", Token: 7}
	acquire := wire.Acquire{Hold: hold, TTL: "40000", Order: wire.ByArrival, Details: "d"}
	release := wire.Release{Hold: hold}
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var array [6]string
		n += len(acquire.Args(array[:0])) + len(join.Args(array[:0])) + len(release.Args(array[:0]))
	}))
}

func TestVotes(t *testing.T) {
	require.Equal(t, "0", wire.Vote{}.Arg(), "a single master")
	require.NotEqual(t, "0", wire.Vote{Quarantine: "30000"}.Arg(), "without an id it is not the vote of a single master")
	vote := wire.Vote{Proposal: 1_700_000_000_000_000, Seen: "set:run", Quarantine: "30000"}
	require.Equal(t, "1700000000000000 set:run 30000 0", vote.Arg())
	vote.Check, vote.Seen = true, wire.SeenNone
	require.Equal(t, "1700000000000000 ? 30000 1", vote.Arg())
}

func TestKeys(t *testing.T) {
	single, several := wire.NewKeyspace("p", 1), wire.NewKeyspace("p", 3)
	for name, lock := range map[string]string{
		"orders": "p:{orders}", "a{b}c": "p:{a%7Bb%7Dc}", "a%7Bb": "p:{a%257Bb}", "": "p:{}",
	} {
		key := single.Of(name)
		require.Equal(t, lock, key.LockHash())
		require.Equal(t, lock+":h", key.Holds())
		require.Equal(t, []string{lock, lock + ":h", lock + ":q", lock + ":x"}, single.ForCall(key))
		require.Equal(t, []string{lock, lock + ":h", lock + ":q", lock + ":x", "p:master"}, several.ForCall(key))
		all := several.All(key)
		require.Equal(t, single.ForCall(key), all.OfLock())
		id, of := single.NewHold([]byte(hold), name)
		require.Equal(t, hold, id)
		require.Equal(t, key, of)
	}
	require.Equal(t, "p:c:client", single.Channel("client"))
}

func TestRenewalsOfSeveralLocks(t *testing.T) {
	keys := wire.NewKeyspace("p", 3)
	renew := wire.Renew{
		{Key: keys.Of("a"), Hold: "h", TTL: "1000", Token: 1}, {Key: keys.Of("b"), Hold: "i", TTL: "2000", Token: 234},
	}
	require.Equal(t, []string{"p:{a}", "p:{a}:h", "p:{b}", "p:{b}:h", "p:master"}, renew.Keys(keys.Marker))
	require.Equal(t, []string{"p:{a}", "p:{a}:h", "p:{b}", "p:{b}:h"}, renew.Keys(""))
	require.Equal(t, []string{"h", "1000", "1", "i", "2000", "234"}, renew.Args())
}

// A pattern finds the first key of each lock whose name begins so, and a key says the name.
func TestKeysOfANamePrefix(t *testing.T) {
	keys := wire.NewKeyspace("p*", 1)
	require.Equal(t, `p\*:{a\[\*\?\\\]%7B*}`, keys.Pattern(`a[*?\]{`))
	for _, name := range []string{"a", "{", "}", "%", "%7B", "a:{b}:h", "名"} {
		got, ok := keys.NameOf(keys.Of(name).LockHash())
		require.True(t, ok)
		require.Equal(t, name, got)
	}
	for _, key := range []string{"p*:{a}:h", "p*:{}", "p*:{a", "q:{a}", "p*:{%}", "p*:{%41}", "p*:{a{}", "p*:master"} {
		_, ok := keys.NameOf(key)
		require.False(t, ok, key)
	}
}
