package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/lab/peer"
)

// A test that runs workers starts this binary for each of them.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		main()
	}
	testredis.Together()
	goleak.VerifyTestMain(m)
}

// The registers with a guard refuse the write of a holder that was overtaken; the other one loses an update by it.
func TestRegisters(t *testing.T) {
	r := newRegisters()
	first, second := map[string]history.Access{}, map[string]history.Access{}
	request := func(token uint64, random string, value uint64) registerRequest {
		return registerRequest{Process: 1, Name: "n", Write: true, Token: token, Random: random, Value: value}
	}
	require.True(t, r.do(request(5, "a", 0), first))
	require.True(t, r.do(request(6, "b", 0), second))
	require.True(t, r.do(request(6, "b", 60), second))
	require.False(t, r.do(request(5, "a", 50), first))
	require.True(t, r.do(registerRequest{Name: "n", Token: 7}, second))

	type access struct {
		guard       string
		token       uint64
		read, wrote uint64
		refused     bool
	}
	var all []access
	for _, a := range r.taken() {
		require.LessOrEqual(t, a.Called, a.Ended)
		all = append(all, access{a.Guard, a.Token, a.Read, a.Wrote, a.Refused})
	}
	require.Equal(t, []access{
		{"", 6, 0, 60, false},
		{history.Fenced, 6, 0, 60, false},
		{history.Compared, 6, 0, 60, false},
		{"", 5, 0, 50, false},
		{history.Fenced, 5, 0, 0, true},
		{history.Compared, 5, 0, 0, true},
		{"", 7, 50, 0, false},
		{history.Fenced, 7, 60, 0, false},
	}, all)
}

// A failover is seen if another server becomes a master, and so is a second master. A master that is only down is none.
func TestFailoversAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		roles [][]string // one after the other
		seen  []string
	}{
		"nothing":          {roles: [][]string{{"", ""}, {"master", "slave"}}},
		"down for a while": {roles: [][]string{{"master", "slave"}, {"", "slave"}, {"master", "slave"}}},
		"another one":      {roles: [][]string{{"master", "slave"}, {"slave", "master"}}, seen: []string{"failover-seen"}},
		"another one at last": {
			roles: [][]string{{"master", "slave"}, {"", "slave"}, {"", "master"}}, seen: []string{"failover-seen"},
		},
		"two for a while": {
			roles: [][]string{{"master", "slave"}, {"master", "master"}, {"slave", "master"}}, seen: []string{"failover-seen"},
		},
		"two, and the first one stays": {
			roles: [][]string{{"master", "slave"}, {"master", "master"}, {"master", "slave"}},
			seen:  []string{"two-masters-seen"},
		},
		"there and back": {
			roles: [][]string{{"master", "slave"}, {"slave", "master"}, {"master", "slave"}},
			seen:  []string{"failover-seen", "failover-seen"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				w, all := &watched{}, &observed{}
				go all.failovers(ctx, w, 1, history.Fault{Excuses: true})
				for _, roles := range c.roles {
					w.set(roles)
					time.Sleep(10 * watchInterval)
				}
				stop()
				time.Sleep(watchInterval)
				synctest.Wait()
				var seen []string
				for _, f := range all.faults() {
					require.True(t, f.Excuses)
					require.Less(t, f.From, f.Until)
					seen = append(seen, f.Kind)
				}
				require.Equal(t, c.seen, seen)
			})
		})
	}
}

// A saved run can be judged again, and what it broke is said.
func TestCheckASavedHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json.gz")
	h := &history.History{
		Run: history.Run{Seed: 9, Masters: 1, Began: 1, Ended: 100},
		Spans: []history.Span{
			{Name: "n", Owner: "a", Write: true, Token: 1, Granted: 10, Last: 30},
			{Name: "n", Owner: "b", Write: true, Token: 2, Granted: 20, Last: 40},
		},
	}
	require.NoError(t, h.Save(path))
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), config{check: path}, &out), errViolated)
	require.Contains(t, out.String(), "VIOLATION exclusion: n: two owners held it for 10ns")

	h.Spans = h.Spans[:1]
	require.NoError(t, h.Save(path))
	require.NoError(t, run(t.Context(), config{check: path}, &out))
}

func TestBadFlags(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), config{deployment: servers, faults: "cut,earthquake"}, nil), `"earthquake"`)
	require.ErrorContains(t, run(t.Context(), config{deployment: "raft"}, nil), `"raft"`)
	require.ErrorContains(t, run(t.Context(), config{deployment: servers, forms: []string{"spin"}}, nil), `"spin"`)
}

// Goroutines are served in the order of their arrival, readers between two writers in any order.
func TestOvertaken(t *testing.T) {
	writes := []bool{false, false, true, false}
	for name, c := range map[string]struct {
		order     []int
		overtaken string
	}{
		"in order":                    {order: []int{0, 1, 2, 3}},
		"two readers":                 {order: []int{1, 0, 2, 3}},
		"a reader behind a writer":    {order: []int{0, 1, 3, 2}, overtaken: "3 before 2"},
		"a writer behind a reader":    {order: []int{0, 2, 1, 3}, overtaken: "2 before 1"},
		"one that was not served":     {order: []int{0, 2, 3}},
		"a reader over a whole queue": {order: []int{3, 0, 1, 2}, overtaken: "3 before 2"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.overtaken, overtaken(c.order, writes)) })
	}
}

func TestInside(t *testing.T) {
	var i inside
	require.True(t, i.enter(reader))
	require.True(t, i.enter(reader), "readers together")
	require.False(t, i.enter(writer))
	i.leave(reader)
	i.leave(reader)
	require.False(t, i.enter(writer), "two writers")
	i.leave(writer)
	require.False(t, i.enter(reader), "a reader beside a writer")
}

// A record of holds has one part for each token, and knows whether a script or the master itself has ended it.
func TestHoldsOfAMaster(t *testing.T) {
	began := time.Now()
	standing := func(token int64) []scriptfuzz.Standing {
		return []scriptfuzz.Standing{{ID: "a", Token: token, Expiry: began.Add(time.Minute).UnixMilli()}}
	}
	for name, c := range map[string]struct {
		changes []scriptfuzz.Change // after the grant of token 5
		skew    time.Duration       // of the master's clock, before them
		want    []history.Hold
	}{
		"it stands": {want: []history.Hold{{Token: 5}}},
		"it is renewed": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(5)}},
			want:    []history.Hold{{Token: 5}},
		},
		"its master's clock goes ahead": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(5)}}, skew: 2 * time.Minute,
			want: []history.Hold{{Token: 5}},
		},
		"it is released": {changes: []scriptfuzz.Change{{Before: standing(5)}}, want: []history.Hold{{Token: 5}}},
		"it is raised": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(7)}},
			want:    []history.Hold{{Token: 5}, {Token: 7}},
		},
		"it is broken": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(0)}},
			want:    []history.Hold{{Token: 5, Ends: true}},
		},
		"its master lost": {changes: []scriptfuzz.Change{{}}, want: []history.Hold{{Token: 5, Lost: true}}},
		"a crowd":         {changes: []scriptfuzz.Change{{Crowd: true}}, want: []history.Hold{{Crowd: true}, {Token: 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHolds(2)
			for _, change := range append([]scriptfuzz.Change{{After: standing(5)}}, c.changes...) {
				change.Key, change.Micros = "fencelock:{n}", time.Now().UnixMicro()
				r.change(change)
				r.skewed(c.skew)
			}
			all := r.take()
			require.Len(t, all, len(c.want))
			for i, hold := range all {
				require.Equal(t, "n", hold.Name)
				require.Equal(t, 2, hold.Master)
				require.LessOrEqual(t, hold.From, hold.Until)
				hold.Name, hold.Master, hold.ID, hold.From, hold.Until = "", 0, "", 0, 0
				require.Equal(t, c.want[i], hold)
			}
		})
	}
}

// Without a lock writes are lost; with this library's tokens, or a store that compares values, none does.
func TestLockLibraries(t *testing.T) {
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
				require.Positive(t, tallies[i].guards[""].acknowledged)
			})
		}
	})
	unlocked, locked := tallies[0], tallies[1]
	require.Positive(t, unlocked.guards[""].lost)
	require.Positive(t, unlocked.overlapped)
	require.Positive(t, unlocked.told)
	require.Zero(t, unlocked.guards[history.Compared].lost)
	require.Positive(t, unlocked.guards[history.Compared].refused)
	require.NotContains(t, unlocked.guards, history.Fenced)

	require.Zero(t, locked.told)
	require.Positive(t, locked.guards[history.Fenced].acknowledged)
	require.Zero(t, locked.guards[history.Fenced].lost)
	require.NotContains(t, locked.guards, history.Compared)
	require.NoError(t, broken(tallies))
	locked.guards[history.Fenced] = guardTally{acknowledged: 2, lost: 1}
	require.ErrorIs(t, broken(tallies), errViolated)

	file := filepath.Join(t.TempDir(), "losses.svg")
	require.NoError(t, plotLosses(file, tallies))
	drawing := expect.NoError(os.ReadFile(file)).In(t)
	require.Contains(t, string(drawing), "fencelock, one server")
	require.NotContains(t, string(drawing), noLock)
}

func TestTallyCounts(t *testing.T) {
	const token = history.Fenced
	h := &history.History{
		Accesses: []history.Access{
			{Name: "n", Called: 1, Ended: 2, Wrote: 1},
			{Name: "n", Called: 3, Ended: 9, Read: 1, Wrote: 2},
			{Name: "n", Called: 5, Ended: 7, Read: 1, Wrote: 3},
			{Name: "n", Called: 10, Ended: 11},
			{Name: "n", Guard: token, Called: 3, Ended: 9, Refused: true},
			{Name: "n", Guard: token, Called: 5, Ended: 7, Wrote: 3},
		},
		Spans: []history.Span{
			{Name: "n", Owner: "a", Write: true, Called: 2, Granted: 3, Last: 6, End: "released"},
			{Name: "n", Owner: "b", Write: true, Called: 0, Granted: 5, Last: 6, End: "lost"},
			{Name: "n", Owner: "c", Write: true, Called: 7, Granted: 10, End: "lost"},
		},
		Faults: []history.Fault{{From: 4, Until: 5, Excuses: true}, {Kind: history.Still}},
	}
	y := tally{}
	y.count(h)
	require.Equal(t, map[string]guardTally{
		"":    {acknowledged: 3, lost: 1},
		token: {acknowledged: 1, refused: 1},
	}, y.guards)
	require.Equal(t, 1, y.faults)
	require.Equal(t, 1, y.overlapped)
	require.Equal(t, 1, y.told)
	require.Zero(t, y.promised, "the fault excuses it")
	require.Equal(t, 2, y.givenUp)
	require.Equal(t, 5*time.Nanosecond, y.longest)
}

// Each library excludes a second caller until the release, knows how long, and shows what a guard may ask for.
func TestLibrariesExclude(t *testing.T) {
	addrs := []string{testredis.Start(t).Addr(), testredis.Start(t).Addr(), testredis.Start(t).Addr()}
	const ttl = 5 * time.Second // which no stall of a busy machine outlasts
	for _, lib := range libraries() {
		t.Run(lib.Name, func(t *testing.T) {
			t.Parallel()
			o := peer.Options{Addrs: addrs[:1], TTL: ttl, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			}}
			if lib.Quorum {
				o.Addrs = addrs
			}
			k := &keeper{ttl: ttl}
			defer k.all.Wait()
			lock := func(ctx context.Context) (*hold, error) {
				locks := expect.NoError(lib.Open(o)).In(t)
				t.Cleanup(func() { require.NoError(t, locks.Close()) })
				taken, err := locks.Lock(ctx, lib.Name)
				if err != nil {
					return nil, err
				}
				return k.keep(taken), nil
			}
			first := expect.NoError(lock(t.Context())).In(t)
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
			second = expect.NoError(lock(t.Context())).In(t)
			require.Equal(t, first.token > 0, second.token > first.token)
			require.Equal(t, first.value != "", second.value != first.value)
			require.NoError(t, second.Release(t.Context()))
		})
	}
	_, err := libraryNamed("mutex")
	require.ErrorContains(t, err, `"mutex"`)
}
