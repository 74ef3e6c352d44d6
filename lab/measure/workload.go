package main

import (
	"context"
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/lab/peer"
)

// Measures are the figures of one peer in one turn, by the name of the column.
type Measures map[string]float64

// Column is one kind of measure.
type Column struct {
	Name   string
	Unit   string
	Digits int  // after the point
	Ratio  bool // is also shown as a ratio to the workload's floor
	More   bool // the greater figure is the better one
	Worst  bool // the greatest of the rounds counts, not the median
}

// Workload is one way to use locks, and its measures.
type Workload struct {
	Name    string
	About   string         // one sentence
	Columns []Column       // the first decides which mode of a client is the better one
	Axis    string         // the meaning of a point, or ""
	Points  []int          // one, 0, if there is no axis
	Labels  map[int]string // of points that are not numbers, or nil
	Over    string         // the peer that ratios are taken over, or ""
	Once    bool           // is counted, not timed: one round is enough
	Peers   []peer.Library
	Measure func(ctx context.Context, s *site, lib peer.Library, point int) (Measures, error)
}

// workloads returns all of them, in the order of the tables.
func workloads() []Workload { return append(single(), instructions(), failover()) }

// single are the workloads on one server, or on several independent ones.
func single() []Workload {
	return []Workload{
		latency(), network(), throughput(), calls(), handOff(), quorum(), keeping("leases-5s", 5*time.Second, 1000, 10000),
		keeping("leases-2s", 2*time.Second, 10000), footprint(), idle(), shared(), readStorm(),
	}
}

// label is the displayed form of a point.
func (w *Workload) label(point int) string {
	if text, ok := w.Labels[point]; ok {
		return text
	}
	return strconv.Itoa(point)
}

// locks reports whether a library is a lock that can be taken repeatedly, as all are but the renewing floor.
func locks(l peer.Library) bool { return l.Name != peer.FloorBatch }

// pairs reports whether a library is measured by uncontended pairs: a bare queue would be one more floor.
func pairs(l peer.Library) bool { return locks(l) && l.Name != peer.FloorQueue }

// waits reports whether a library's callers wait for a lock that is taken.
func waits(l peer.Library) bool { return !l.Floor || l.Queues }
