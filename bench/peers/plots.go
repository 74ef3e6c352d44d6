package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed74116694/fencelock/bench/peers/internal/chart"
	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
)

// plot is one picture of one column of a workload: a line for each peer over the points, or bars at one point.
type plot struct {
	file, title      string
	workload, column string
	bars             bool
	point            int // of bars
	log              bool
}

func plots() []plot {
	return []plot{
		{file: "throughput", title: "Lock and Release on distinct names", workload: "throughput", column: perSecond},
		{
			file: "handoff-latency", title: "Hand-off among 16 clients: from the release to the next holder",
			workload: "hand-off", column: handOffDelay, bars: true, point: contenders, log: true,
		},
		{
			file: "handoff-rate", title: "Hand-offs among 16 clients", workload: "hand-off", column: handOffs,
			bars: true, point: contenders,
		},
		{
			file: "fairness", title: "Fairness among 16 clients: 1 if all get the same share",
			workload: "hand-off", column: fairness, bars: true, point: contenders,
		},
		{file: "leases", title: "Locks held and kept alive, TTL 5 s", workload: "leases-5s", column: serverShare, log: true},
		{file: "masters", title: "64 goroutines over a quorum", workload: "quorum", column: perSecond},
	}
}

// drawAll draws the measurements into the folder.
func drawAll(folder string, measured []WorkloadResult) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var failed error
	for i := range measured {
		w := &measured[i]
		for _, p := range plots() {
			if p.workload == w.Name {
				failed = errors.Join(failed, draw(folder, p.file, p.svg(w)))
			}
		}
		if strings.HasPrefix(w.Name, "growth-") {
			failed = errors.Join(failed, draw(folder, w.Name, growthSVG(w)))
		}
	}
	return failed
}

func draw(folder, file, svg string) error {
	return os.WriteFile(filepath.Join(folder, file+".svg"), []byte(svg), 0o644)
}

func (p plot) svg(w *WorkloadResult) string {
	if p.bars {
		b := chart.Bars{Title: p.title, Label: columnTitle(w, p.column), Log: p.log}
		for _, row := range w.Rows {
			if v, ok := row.Median[p.column]; ok && row.Point == p.point {
				b.Bars = append(b.Bars, chart.Bar{Name: row.Peer, Value: v, Strong: row.Peer == peer.Ours})
			}
		}
		return b.SVG()
	}
	l := chart.Lines{Title: p.title, XLabel: w.Axis, YLabel: columnTitle(w, p.column), LogY: p.log}
	for _, row := range w.Rows {
		if v, ok := row.Median[p.column]; ok {
			add(&l, row.Peer, strings.HasPrefix(row.Peer, "floor"), row.Point, v)
		}
	}
	return l.SVG()
}

// growthSVG has a line for each call of this library.
func growthSVG(w *WorkloadResult) string {
	l := chart.Lines{Title: "Server time of one call (" + peer.Ours + ")", XLabel: w.Axis, YLabel: "us", LogY: true}
	for _, row := range w.Rows {
		for _, c := range w.Columns {
			if v, ok := row.Median[c.Name]; ok {
				add(&l, c.Name, false, row.Point, v)
			}
		}
	}
	return l.SVG()
}

// add extends the series of this name, and begins it if there is none.
func add(l *chart.Lines, name string, dashed bool, x int, y float64) {
	for i := range l.Series {
		if s := &l.Series[i]; s.Name == name {
			s.X, s.Y = append(s.X, float64(x)), append(s.Y, y)
			return
		}
	}
	l.Series = append(l.Series, chart.Series{Name: name, Dashed: dashed, X: []float64{float64(x)}, Y: []float64{y}})
}

func columnTitle(w *WorkloadResult, column string) string {
	for _, c := range w.Columns {
		if c.Name == column {
			return title(c)
		}
	}
	return column
}
