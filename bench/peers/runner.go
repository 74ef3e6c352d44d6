package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
)

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
				m, err := w.Measure(ctx, r.site, lib, point)
				if err != nil {
					result.Failures = append(result.Failures, fmt.Sprintf("%s, round %d: %v", label(w, lib, point), round+1, err))
					continue
				}
				result.row(lib.Name, point).Rounds[round] = m
			}
		}
	}
	return result.summarised()
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
