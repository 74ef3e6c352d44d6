package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/lab/peer"
)

// WorkloadResult is the outcome of one workload.
type WorkloadResult struct {
	Name     string
	About    string
	Axis     string
	Over     string
	Columns  []Column
	Rows     []*Row
	Failures []string
}

// Row is one peer at one point.
type Row struct {
	Peer   string
	Point  int
	Label  string
	Rounds []Measures // null if the peer failed
	// Automatic has the rounds in which the automatic mode of rueidis was the better one. Only that mode's figures count.
	Automatic []bool
	Median    Measures // over the rounds; the greatest if the worst counts
	Ratios    Measures // to the workload's floor, taken within a round; medians
}

func newWorkloadResult(w Workload, rounds int) WorkloadResult {
	r := WorkloadResult{Name: w.Name, About: w.About, Axis: w.Axis, Over: w.Over, Columns: w.Columns}
	for _, point := range w.Points {
		for _, lib := range w.Peers {
			r.Rows = append(r.Rows, &Row{Peer: lib.Name, Point: point, Label: w.label(point), Rounds: make([]Measures, rounds)})
		}
	}
	return r
}

// row returns nil if there is none.
func (w *WorkloadResult) row(peer string, point int) *Row {
	for _, row := range w.Rows {
		if row.Peer == peer && row.Point == point {
			return row
		}
	}
	return nil
}

// summarised takes the medians, once all rounds are in.
func (w WorkloadResult) summarised() WorkloadResult {
	for _, row := range w.Rows {
		floor := w.row(w.Over, row.Point)
		row.Median, row.Ratios = Measures{}, Measures{}
		for _, c := range w.Columns {
			if m, ok := c.of(row.Rounds); ok {
				row.Median[c.Name] = m
			}
			if ratio, ok := ratioOf(row, floor, c.Name); c.Ratio && ok {
				row.Ratios[c.Name] = ratio
			}
		}
	}
	return w
}

// of returns the figure of the rounds, and false if none has the measure.
func (c Column) of(rounds []Measures) (float64, bool) {
	var all []float64
	for _, m := range rounds {
		if v, ok := m[c.Name]; ok {
			all = append(all, v)
		}
	}
	if c.Worst && len(all) > 0 {
		return slices.Max(all), true
	}
	return median(all), len(all) > 0
}

// ratioOf divides within each round, and returns the median of the ratios.
func ratioOf(row, over *Row, column string) (float64, bool) {
	if row == nil || over == nil {
		return 0, false
	}
	var all []float64
	for i := range row.Rounds {
		v, ok := row.Rounds[i][column]
		floor, there := over.Rounds[i][column]
		if ok && there && floor != 0 {
			all = append(all, v/floor)
		}
	}
	return median(all), len(all) > 0
}

func (w *WorkloadResult) failed() error {
	if len(w.Failures) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", w.Name, strings.Join(w.Failures, "; "))
}

// runner lets the peers of a workload take turns.
type runner struct {
	site     *site
	rounds   int
	progress io.Writer
}

// run measures every peer at every point in every round. Each round begins with another peer, so that a peer does not
// always have the turn after the same neighbour. A peer that fails is left out of that round.
func (r *runner) run(ctx context.Context, w Workload) WorkloadResult {
	rounds := r.rounds
	if w.Once {
		rounds = 1
	}
	result := newWorkloadResult(w, rounds)
	for round := range rounds {
		for _, point := range w.Points {
			for turn := range w.Peers {
				lib := w.Peers[(turn+round)%len(w.Peers)]
				if ctx.Err() != nil {
					return result.summarised()
				}
				r.tell("%s: round %d of %d, %s", w.Name, round+1, rounds, label(w, lib, point))
				runtime.GC() // the previous peer's garbage is not this one's cost
				m, automatic, err := r.measure(ctx, w, lib, point)
				if err != nil {
					result.Failures = append(result.Failures, fmt.Sprintf("%s, round %d: %v", label(w, lib, point), round+1, err))
					continue
				}
				row := result.row(lib.Name, point)
				row.Rounds[round] = m
				if lib.Modes {
					row.Automatic = append(row.Automatic, automatic)
				}
			}
		}
	}
	return result.summarised()
}

// measure returns the figures of the better mode of the client, where a library has two and they are timed.
func (r *runner) measure(
	ctx context.Context, w Workload, lib peer.Library, point int,
) (best Measures, automatic bool, err error) {
	best, err = w.Measure(ctx, r.site, lib, point)
	if err != nil || !lib.Modes || w.Once {
		return best, false, err
	}
	other, err := w.Measure(ctx, r.site, lib.InAutomaticMode(), point)
	if err != nil {
		return nil, false, err
	}
	c := w.Columns[0]
	greater, less := other[c.Name] > best[c.Name], other[c.Name] < best[c.Name]
	if c.More && greater || !c.More && less {
		return other, true, nil
	}
	return best, false, nil
}

// mostlyAutomatic reports whether the automatic mode was the better one in most of the rounds.
func (r *Row) mostlyAutomatic() bool {
	n := 0
	for _, automatic := range r.Automatic {
		if automatic {
			n++
		}
	}
	return 2*n > len(r.Automatic)
}

func label(w Workload, lib peer.Library, point int) string {
	if w.Axis == "" {
		return lib.Name
	}
	if _, text := w.Labels[point]; text {
		return lib.Name + ", " + w.label(point)
	}
	return fmt.Sprintf("%s, %d %s", lib.Name, point, w.Axis)
}

func (r *runner) tell(format string, args ...any) { fmt.Fprintf(r.progress, format+"\n", args...) }
