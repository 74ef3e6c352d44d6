package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/chaos/history"
)

// A test that runs workers starts this binary for each of them.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// The register with a guard refuses the write of a holder that was overtaken; the other one loses an update by it.
func TestRegisters(t *testing.T) {
	r := newRegisters()
	first, second := map[bool]history.Access{}, map[bool]history.Access{}
	request := func(token, value uint64) registerRequest {
		return registerRequest{Process: 1, Name: "n", Write: true, Token: token, Value: value}
	}
	require.True(t, r.do(request(5, 0), first))
	require.True(t, r.do(request(6, 0), second))
	require.True(t, r.do(request(6, 60), second))
	require.False(t, r.do(request(5, 50), first))
	require.True(t, r.do(registerRequest{Name: "n", Token: 7}, second))

	type access struct {
		guarded     bool
		token       uint64
		read, wrote uint64
		refused     bool
	}
	var all []access
	for _, a := range r.all() {
		require.LessOrEqual(t, a.Called, a.Ended)
		all = append(all, access{a.Guarded, a.Token, a.Read, a.Wrote, a.Refused})
	}
	require.Equal(t, []access{
		{true, 6, 0, 60, false},
		{false, 6, 0, 60, false},
		{true, 5, 0, 0, true},
		{false, 5, 0, 50, false},
		{true, 7, 60, 0, false},
		{false, 7, 50, 0, false},
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

// A saved run can be judged and drawn again, and what it broke is said.
func TestCheckASavedHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl.gz")
	h := &history.History{
		Run: history.Run{Seed: 9, Masters: 1, Began: 1, Ended: 100},
		Spans: []history.Span{
			{Name: "n", Owner: "a", Write: true, Token: 1, Granted: 10, Last: 30},
			{Name: "n", Owner: "b", Write: true, Token: 2, Granted: 20, Last: 40},
		},
	}
	require.NoError(t, h.Save(path))
	drawing := filepath.Join(t.TempDir(), "run.html")
	var out bytes.Buffer
	require.ErrorIs(t, run(t.Context(), config{check: path, report: drawing}, &out), errViolated)
	require.Contains(t, out.String(), "VIOLATION exclusion: n: two owners held it for 10ns")
	require.FileExists(t, drawing)

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
