package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/history"
	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// The workload shows what it is for: without a lock sets lose elements, and with this library's tokens none does. A
// store that compares values loses nothing even without a lock.
func TestLockSets(t *testing.T) {
	testredis.Require(t)
	cfg := config{
		deployment: servers, processes: 2, workers: 4, names: 2, duration: time.Second, gap: 300 * time.Millisecond, seed: 7,
	}
	tallies := []tally{{library: noLock, scene: "one server"}, {library: "fencelock", scene: "one server"}}
	t.Run("run", func(t *testing.T) {
		for i := range tallies {
			t.Run(tallies[i].library, func(t *testing.T) {
				t.Parallel()
				require.NoError(t, tallies[i].run(t, cfg, scene{masters: 1, durable: true, faults: []string{"cut"}}))
				require.Positive(t, tallies[i].sets[bare].acknowledged)
			})
		}
	})
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
	require.NotContains(t, string(drawing), noLock)
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

// Both guards refuse the write of a holder that was overtaken, the bare set takes it.
func TestSets(t *testing.T) {
	store, err := openSets(testredis.Start(t).Addr())
	require.NoError(t, err)
	defer store.close()
	ctx := t.Context()
	for guard, holds := range map[string][]*hold{
		compared: {{value: "a"}, {value: "b"}},
		fenced:   {{token: 5}, {token: 6}},
	} {
		t.Run(guard, func(t *testing.T) {
			early, late := holds[0], holds[1]
			require.Equal(t, []string{bare, guard}, guardsOf(early))
			for _, of := range guardsOf(early) {
				for _, hold := range holds {
					set, err := store.read(ctx, guard, of, hold)
					require.NoError(t, err)
					require.Empty(t, set)
				}
				require.NoError(t, store.write(ctx, guard, of, late, with("", 20)))
			}
			require.NoError(t, store.write(ctx, guard, bare, early, with("", 10)))
			require.ErrorIs(t, store.write(ctx, guard, guard, early, with("", 10)), errRefused)
			left, err := store.read(ctx, guard, guard, late)
			require.NoError(t, err)
			require.Equal(t, map[uint64]bool{20: true, 30: true}, elements(with(left, 30)))
			require.Equal(t, uint64(30), newest(with(left, 30)))
		})
	}
	require.Zero(t, newest(""))
	require.Empty(t, elements(""))
}

// Each library excludes a second caller until the release, on one server or on several masters, knows how long, and
// shows what a guard may ask for.
func TestLibrariesExclude(t *testing.T) {
	addrs := []string{testredis.Start(t).Addr(), testredis.Start(t).Addr(), testredis.Start(t).Addr()}
	const ttl = 900 * time.Millisecond
	for _, lib := range libraries() {
		t.Run(lib.Name, func(t *testing.T) {
			o := peer.Options{Addrs: addrs[:1], TTL: ttl, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			}}
			if lib.Quorum {
				o.Addrs = addrs
			}
			k := &keeper{ttl: ttl}
			defer k.all.Wait()
			lock := func(ctx context.Context) (*hold, error) {
				locks, err := lib.Open(o)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, locks.Close()) })
				taken, err := locks.Lock(ctx, lib.Name)
				if err != nil {
					return nil, err
				}
				return k.keep(taken), nil
			}
			first, err := lock(t.Context())
			require.NoError(t, err)
			waiting, stop := context.WithCancel(t.Context())
			time.AfterFunc(2*ttl, stop)
			second, err := lock(waiting)
			if lib.Name == noLock {
				require.NotEqual(t, first.value, second.value)
				return
			}
			require.Error(t, err, "it is kept for longer than its TTL")
			require.True(t, first.Held(t.Context()))
			require.NoError(t, first.Release(t.Context()))
			second, err = lock(t.Context())
			require.NoError(t, err)
			require.Equal(t, first.token > 0, second.token > first.token)
			require.Equal(t, first.value != "", second.value != first.value)
			require.NoError(t, second.Release(t.Context()))
		})
	}
	_, err := libraryNamed("mutex")
	require.ErrorContains(t, err, `"mutex"`)
}
