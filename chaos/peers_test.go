package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/history"
	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/testredis"
)

// The workload shows what it is for: without a lock sets lose elements, and with this library's tokens none does. A
// store that compares values loses nothing even without a lock.
func TestLockSets(t *testing.T) {
	testredis.Require(t)
	cfg := config{
		deployment: servers, processes: 2, workers: 4, names: 2, duration: time.Second, gap: 300 * time.Millisecond, seed: 7,
	}
	var tallies []tally
	for _, library := range []string{peer.None, "fencelock"} {
		y := tally{library: library, scene: "one server"}
		require.NoError(t, y.run(t, cfg, scenes()[0]))
		require.Positive(t, y.sets[bare].acknowledged)
		tallies = append(tallies, y)
	}
	unlocked, locked := tallies[0], tallies[1]
	require.Positive(t, unlocked.sets[bare].lost)
	require.Positive(t, unlocked.overlapped)
	require.Positive(t, unlocked.told)
	require.Zero(t, unlocked.sets[compared].lost)
	require.Positive(t, unlocked.sets[compared].refused)
	require.NotContains(t, unlocked.sets, fenced)

	require.Zero(t, locked.told)
	require.Positive(t, locked.sets[fenced].acknowledged)
	require.Zero(t, locked.sets[fenced].lost)
	require.NotContains(t, locked.sets, compared)
	require.NoError(t, broken(tallies))
	locked.sets[fenced] = setTally{acknowledged: 2, lost: 1}
	require.ErrorIs(t, broken(tallies), errViolated)

	file := filepath.Join(t.TempDir(), "losses.svg")
	require.NoError(t, plotLosses(file, tallies))
	drawing, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(drawing), "fencelock, one server")
	require.NotContains(t, string(drawing), peer.None)
}

func TestTallyCounts(t *testing.T) {
	plain, token := setKey("n", bare), setKey("n", fenced)
	h := &history.History{
		Accesses: []history.Access{
			{Name: plain, Called: 1, Ended: 2, Wrote: 1},
			{Name: plain, Called: 3, Ended: 9, Wrote: 2},
			{Name: plain, Called: 5, Ended: 7, Wrote: 3},
			{Name: plain, Called: 10, Ended: 11},
			{Name: token, Called: 3, Ended: 9, Refused: true},
			{Name: token, Called: 5, Ended: 7, Wrote: 3},
		},
		Spans: []history.Span{
			{Name: "n", Owner: "a", Write: true, Called: 2, Granted: 3, Last: 6, End: "released"},
			{Name: "n", Owner: "b", Write: true, Called: 0, Granted: 5, Last: 6, End: "lost"},
			{Name: "n", Owner: "c", Write: true, Called: 7, Granted: 10, End: "lost"},
		},
		Faults: []history.Fault{{From: 4, Until: 5, Excuses: true}, {Kind: history.Still}},
	}
	y := tally{}
	y.count(h, map[string]map[uint64]bool{plain: {1: true, 2: true}, token: {3: true}})
	require.Equal(t, map[string]setTally{
		bare:   {acknowledged: 3, lost: 1},
		fenced: {acknowledged: 1, refused: 1},
	}, y.sets)
	require.Equal(t, 1, y.faults)
	require.Equal(t, 1, y.overlapped)
	require.Equal(t, 1, y.told)
	require.Zero(t, y.promised, "the fault excuses it")
	require.Equal(t, 2, y.givenUp)
	require.Equal(t, 5*time.Nanosecond, y.longest)
}

// The guards decide by what a hold can show.
func TestSets(t *testing.T) {
	server, err := openSets(testredis.Start(t).Addr())
	require.NoError(t, err)
	defer server.close()
	none, err := peer.Named(peer.None)
	require.NoError(t, err)
	locks, err := none.Open(peer.Options{})
	require.NoError(t, err)
	ctx := t.Context()
	first, err := locks.Lock(ctx, "n")
	require.NoError(t, err)
	second, err := locks.Lock(ctx, "n")
	require.NoError(t, err)
	require.Equal(t, []string{bare, compared}, guardsOf(first))
	for _, guard := range guardsOf(first) {
		for _, hold := range []peer.Hold{first, second} {
			set, err := server.read(ctx, "n", guard, hold)
			require.NoError(t, err)
			require.Empty(t, set)
		}
		require.NoError(t, server.write(ctx, "n", guard, second, with("", 20)))
		err := server.write(ctx, "n", guard, first, with("", 10))
		if guard == compared {
			require.ErrorIs(t, err, errRefused)
		} else {
			require.NoError(t, err)
		}
	}
	left, err := server.read(ctx, "n", compared, second)
	require.NoError(t, err)
	require.Equal(t, "20", left)

	require.Equal(t, map[uint64]bool{20: true, 30: true}, elements(with(left, 30)))
	require.Equal(t, uint64(30), newest(with(left, 30)))
	require.Zero(t, newest(""))
	require.Empty(t, elements(""))
}
