package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed74116694/fencelock/lab/chart"
	"github.com/seed74116694/fencelock/lab/peer"
)

// plot is one picture of one column of a workload: a line for each peer over the points, or a row of dots at one point.
type plot struct {
	file, title      string
	workload, column string
	dots             bool
	point            int // of dots
	log              bool
}

func plots() []plot {
	return []plot{
		{file: "throughput", title: "Lock and Release on distinct names", workload: "throughput", column: perSecond},
		{
			file: "handoff-latency", title: "Hand-off among 16 clients: from the release to the next holder",
			workload: "hand-off", column: handOffDelay, dots: true, point: contenders, log: true,
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
				failed = errors.Join(failed, p.of(w).Save(filepath.Join(folder, p.file+".svg")))
			}
		}
	}
	return failed
}

func (p plot) of(w *WorkloadResult) interface{ Save(file string) error } {
	if p.dots {
		d := chart.Dots{Title: p.title, Label: columnTitle(w, p.column), Log: p.log}
		for _, row := range w.Rows {
			if v, ok := row.Median[p.column]; ok && row.Point == p.point {
				d.Dots = append(d.Dots, chart.Dot{Name: row.Peer, Value: v, Strong: row.Peer == peer.Ours})
			}
		}
		return d
	}
	l := chart.Lines{Title: p.title, XLabel: w.Axis, YLabel: columnTitle(w, p.column), LogY: p.log}
	for _, row := range w.Rows {
		if v, ok := row.Median[p.column]; ok {
			add(&l, row.Peer, strings.HasPrefix(row.Peer, "floor"), row.Point, v)
		}
	}
	return l
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
