package main

import (
	"context"
	"slices"
	"strconv"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
)

// Measures are what one peer showed once, by the name of the column.
type Measures map[string]float64

// Column is one kind of measure.
type Column struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Digits int    `json:"-"` // after the point, in a table
	Ratio  bool   `json:"-"` // is shown over that of the workload's floor too
	Worst  bool   `json:"-"` // the greatest of the rounds counts, not the median
}

// Workload is one way to use locks, and what is measured of it.
type Workload struct {
	Name    string
	About   string // one sentence
	Columns []Column
	Axis    string         // what a point is, or ""
	Points  []int          // one, 0, where there is no axis
	Labels  map[int]string // of points that are no numbers, or nil
	Over    string         // the peer that ratios are taken over, or ""
	Once    bool           // is counted, not timed: one round is enough
	Peers   []peer.Library
	Measure func(ctx context.Context, s *site, lib peer.Library, point int) (Measures, error)
}

// workloads returns all of them, in the order of the tables.
func workloads() []Workload { return slices.Concat(single(), []Workload{instructions()}, deployed()) }

// single are those on one server, or on several that know nothing of each other.
func single() []Workload {
	return []Workload{
		latency(), throughput(), calls(), handOff(), quorum(), leases5s(), leases2s(), footprint(), idle(),
		growthWaiters(), growthReaders(), relock(), cohort(), readStorm(), readMostly(), readMany(),
	}
}

// label is how a point is shown.
func (w *Workload) label(point int) string {
	if text, ok := w.Labels[point]; ok {
		return text
	}
	return strconv.Itoa(point)
}

// locks reports whether a library is a lock that can be taken again and again, as all are but the renewing floor.
func locks(l peer.Library) bool { return l.Name != peer.FloorBatch }

// pairs reports whether a library is measured by uncontended pairs: a bare queue would be one more floor.
func pairs(l peer.Library) bool { return locks(l) && l.Name != peer.FloorQueue }
