package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
	"github.com/seed74116694/fencelock/lab/peer"
)

func TestMain(m *testing.M) {
	server.ServeDelayed()
	goleak.VerifyTestMain(m)
}

// results runs workloads on a real server, shortly and once.
func results(t *testing.T, window time.Duration, names ...string) []WorkloadResult {
	testredis.Require(t)
	cfg := config{rounds: 1}
	require.NoError(t, cfg.choose(strings.Join(names, ",")))
	s := &site{t: t, binary: testredis.Binaries()[0], window: window}
	all, err := measure(t.Context(), cfg, s, io.Discard, io.Discard)
	require.NoError(t, err)
	require.Len(t, all, len(names))
	for _, w := range all {
		for _, row := range w.Rows {
			require.NotEmpty(t, row.Median, "%s: %s", w.Name, row.Peer)
		}
	}
	return all
}

// Every peer does its work in a timed, a counted and a contended workload, and what is exact is what it must be.
func TestWorkloads(t *testing.T) {
	all := results(t, 20*time.Millisecond, "latency", "calls", "hand-off")
	timed, counted := all[0], all[1]
	for _, lib := range peer.Select(pairs) {
		require.Positive(t, timed.row(lib.Name, 0).Median[p50], lib.Name)
	}
	for name, want := range map[string]float64{
		peer.FloorSet: 2, peer.FloorLua: 6, peer.RedsyncRueidis: 2, peer.RedsyncGoRedis: 2, peer.Redislock: 3,
		peer.Rueidislock: 4,
	} {
		require.Equal(t, want, counted.row(name, 0).Median[insideWrite], name)
		require.Equal(t, 2.0, counted.row(name, 0).Median["sent, pair"], name)
	}
	require.Positive(t, counted.row(peer.Ours, 0).Median[insideRead])
	folder := t.TempDir()
	require.NoError(t, drawAll(folder, all))
	require.FileExists(t, filepath.Join(folder, "handoff-latency.svg"))
}

// Every form does its work in the workloads of shared holds, and no client is left out.
func TestSharedHolds(t *testing.T) {
	for _, row := range results(t, 50*time.Millisecond, "shared", "read-storm")[1].Rows {
		require.Positive(t, row.Median["reads/s"], row.Peer)
	}
}

// A run says what its figures depend on.
func TestConditions(t *testing.T) {
	testredis.Require(t)
	var stdout bytes.Buffer
	args := []string{"-w", "network", "-for", "20ms", "-rounds", "1", "-server", testredis.Binaries()[0]}
	require.NoError(t, run(t.Context(), args, &stdout, io.Discard))
	require.Regexp(t, `conditions: .* server v=\d+\.\d+\.\d+ without persistence`, stdout.String())
}

// A gap begins with the time that is looked at, or with a moment, and ends with the next one or with that time. Each
// strike is looked at for itself, and the one with the most above the server's own gap counts.
func TestGaps(t *testing.T) {
	all := []time.Duration{9, 1, 4, 5}
	require.Equal(t, time.Duration(4), longestGap(all, 0, 10))
	require.Equal(t, time.Duration(7), longestGap(all, 4, 9+7), "to the end")
	require.Equal(t, time.Duration(2), longestGap(all, 2, 6), "what is outside does not count")
	require.Equal(t, time.Duration(10), longestGap(nil, 0, 10))

	const ms = time.Millisecond
	r := &record{grants: []time.Duration{90 * ms, 130 * ms}}
	r.written = []time.Duration{10 * ms, 20 * ms, 100 * ms, 110 * ms}
	m := r.gaps([]time.Duration{0, 100 * ms, 140 * ms})
	require.InDelta(t, 10, m[gapAbove], 1e-9, "90 of 80, then 30 of 30")
	require.InDelta(t, 90, m[gapOfLocks], 1e-9)
	require.InDelta(t, 80, m[gapOfServer], 1e-9)
}

func TestFlagsRefused(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-w", "nothing"}, `there is no workload "nothing"`},
		{[]string{"-rounds", "0"}, "-rounds 0: must be 1 to 100"},
		{[]string{"-for", "0s"}, "-for 0s: must be positive"},
		{[]string{"-for", "2m"}, "-for 2m0s: must be positive, and 1m0s at most"},
		{[]string{"latency"}, `"latency" is not a flag`},
	} {
		require.ErrorContains(t, run(t.Context(), test.args, &bytes.Buffer{}, &bytes.Buffer{}), test.says)
	}
}

func TestListNamesEveryWorkload(t *testing.T) {
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-w", "list"}, &stdout, &bytes.Buffer{}))
	for _, w := range workloads() {
		require.Contains(t, stdout.String(), w.Name)
	}
}

// measuredPairs is a workload in three rounds, on a machine that gets slower and slower.
func measuredPairs() WorkloadResult {
	w := newWorkloadResult(Workload{
		Name: "latency", About: "about it", Over: peer.FloorSet, Points: []int{0},
		Columns: []Column{{Name: p50, Unit: "us", Digits: 1, Ratio: true}, {Name: "p99", Unit: "us"}},
		Peers:   peer.Named(peer.FloorSet, peer.Ours, peer.Redislock),
	}, 3)
	w.row(peer.FloorSet, 0).Rounds = []Measures{{p50: 10}, {p50: 20}, {p50: 100}}
	w.row(peer.Ours, 0).Rounds = []Measures{{p50: 13}, {p50: 28}, {p50: 110}}
	w.row(peer.Redislock, 0).Rounds = []Measures{nil, {p50: 30}, nil}
	w.Failures = []string{"redislock, round 1: gone"}
	return w.summarised()
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	w := measuredPairs()
	require.InDelta(t, 28, w.row(peer.Ours, 0).Median[p50], 1e-9)
	require.InDelta(t, 1.3, w.row(peer.Ours, 0).Ratios[p50], 1e-9, "the median of 1.3, 1.4 and 1.1, not 28 over 20")
	require.InDelta(t, 1.5, w.row(peer.Redislock, 0).Ratios[p50], 1e-9, "of the rounds that there are")
	require.NotContains(t, w.row(peer.Ours, 0).Median, "p99")
	require.ErrorContains(t, w.failed(), "latency: redislock, round 1: gone")
}

// Of the two modes of a client the better one counts: all of its figures, and none of the other's.
func TestTheBetterModeCounts(t *testing.T) {
	modes := peer.Library{Name: "floor", Modes: true, Open: func(o peer.Options) (peer.Peer, error) {
		if o.Automatic {
			return nil, errAutomatic
		}
		return nil, errPipelined
	}}
	for _, tt := range []struct {
		name                 string
		pipelined, automatic float64
		more, once, want     bool
	}{
		{name: "less is better", pipelined: 20, automatic: 10, want: true},
		{name: "and is not there", pipelined: 10, automatic: 20},
		{name: "more is better", pipelined: 10, automatic: 20, more: true, want: true},
		{name: "and is not there either", pipelined: 20, automatic: 10, more: true},
		{name: "the same", pipelined: 10, automatic: 10},
		{name: "more, but the same", pipelined: 10, automatic: 10, more: true},
		{name: "counted, not timed", pipelined: 20, automatic: 10, once: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := Workload{
				Name: "modes", Points: []int{0}, Peers: []peer.Library{modes}, Once: tt.once,
				Columns: []Column{{Name: "figure", More: tt.more}, {Name: "other"}},
				Measure: func(_ context.Context, _ *site, lib peer.Library, _ int) (Measures, error) {
					if _, err := lib.Open(peer.Options{}); errors.Is(err, errAutomatic) {
						return Measures{"figure": tt.automatic, "other": 2}, nil
					}
					return Measures{"figure": tt.pipelined, "other": 1}, nil
				},
			}
			result := (&runner{rounds: 1, progress: io.Discard}).run(t.Context(), w)
			row := result.row("floor", 0)
			require.Equal(t, tt.want, row.mostlyAutomatic())
			want := Measures{"figure": tt.pipelined, "other": 1}
			if tt.want {
				want = Measures{"figure": tt.automatic, "other": 2}
			}
			require.Equal(t, want, row.Median)
			var out bytes.Buffer
			writeWorkload(&out, WorkloadResult{Columns: w.Columns, Rows: []*Row{row}})
			require.Equal(t, tt.want, bytes.Contains(out.Bytes(), []byte("floor *")))
		})
	}
}

var errAutomatic, errPipelined = errors.New("automatic"), errors.New("pipelined")

func TestTable(t *testing.T) {
	var out bytes.Buffer
	writeWorkload(&out, measuredPairs())
	require.Equal(t, `latency: about it
(x: over floor: SET NX)

peer                     p50, us      x     p99, us
floor: SET NX               20.0   1.00           -
fencelock                   28.0   1.30           -
redislock                   30.0   1.50           -
failed: redislock, round 1: gone

`, out.String())
}

// A plot of a column or a point that no workload has would never be drawn.
func TestPlotsShowWhatIsMeasured(t *testing.T) {
	for _, p := range plots() {
		i := slices.IndexFunc(workloads(), func(w Workload) bool { return w.Name == p.workload })
		require.GreaterOrEqual(t, i, 0, p.file)
		w := workloads()[i]
		require.True(t, slices.ContainsFunc(w.Columns, func(c Column) bool { return c.Name == p.column }), p.file)
		require.True(t, !p.dots || slices.Contains(w.Points, p.point), p.file)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		all  []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		before := append([]float64(nil), test.all...)
		require.Equal(t, test.want, median(test.all))
		require.Equal(t, before, test.all, "the order stays")
	}
	require.Zero(t, quantile(nil, .5))
	require.Equal(t, 2*time.Second, quantile([]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, .5))
}

func TestJain(t *testing.T) {
	require.Zero(t, jain(nil))
	require.Zero(t, jain([]float64{0, 0}))
	require.InDelta(t, 1, jain([]float64{7, 7, 7, 7}), 1e-9)
	require.InDelta(t, .25, jain([]float64{0, 9, 0, 0}), 1e-9)
	require.InDelta(t, .9, jain([]float64{1, 2}), 1e-9)
}

// Who asked before the lock was released, and did not release it himself, got it by a hand-off.
func TestHandOffsAreCounted(t *testing.T) {
	a := &arena{}
	c := &contender{arena: a, id: 1}
	a.freed.Store(int64(10 * time.Millisecond))
	a.last.Store(2)
	c.take(4*time.Millisecond, 11*time.Millisecond)
	require.Equal(t, 1, c.handOffs)
	require.Equal(t, []time.Duration{time.Millisecond}, c.handed)

	c.take(10*time.Millisecond, 12*time.Millisecond) // nobody has released since it asked
	a.last.Store(1)
	c.take(4*time.Millisecond, 13*time.Millisecond) // its own
	require.Equal(t, 1, c.handOffs)
	require.Equal(t, 3, c.locks)
}
