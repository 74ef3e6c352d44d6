// Package explore runs a few goroutines in every order of their steps. A step is what a goroutine does from one point
// to the next: the overlay of command noise puts a point after each operation that orders goroutines, and before each
// lock.
//
// Only one goroutine makes a step at a time, and testing/synctest reports when it has reached the next point or blocks.
// The schedules are searched depth first, from the one in which each goroutine runs as long as it can.
//
// A world may be a whole program. Then the goroutines that the program starts run between the steps until they block,
// and those in World.Started, such as the goroutine of a timer, make steps too. Time is fake and passes only in the
// steps of World.Elapses.
package explore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

// World is what one schedule runs: goroutines, and the check of what they have left. Functions are named by a part of
// their full name.
type World struct {
	Goroutines []func()
	Check      func() error
	Elapses    []time.Duration // steps in which so much time goes by, in this order
	Within     []string        // the functions whose points end steps; all if empty
	Started    []string        // functions in which goroutines that the code under test has started make steps too
	Patience   time.Duration   // how much time may go by at the end, until the goroutines have ended
}

// Unbounded lets goroutines be interrupted as often as they have points.
const Unbounded = 1 << 30

// Run runs a new world for each schedule in which a goroutine that could go on is interrupted at most so many times. It
// returns the number of schedules. If a goroutine still waits after a schedule, or the check fails, the test ends with
// the trace of the schedule. The world is made in a bubble of testing/synctest, whose end is that of its t.
func Run(t *testing.T, interruptions int, world func(t *testing.T) World) (schedules int) {
	t.Helper()
	s := &search{bound: interruptions}
	// With one processor, the goroutines without steps run in the same order each time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for more, runs := true, 0; more; runs++ {
		prepare(t)
		synctest.Test(t, func(t *testing.T) {
			defer schedulenoise.OnPoint(nil)
			if err := s.run(world(t)); err != nil { // logged here: where a goroutine waits for ever, Test panics
				t.Errorf("schedule %d: %v\n%s", schedules+1, err, s.trace())
			}
		})
		if t.Failed() {
			t.FailNow()
		}
		if runs < warmUps {
			s.choices = nil
			continue
		}
		if s.astray && s.repeated < mostRepeated {
			s.repeated++
			continue
		}
		if s.astray {
			t.Fatalf("schedule %d goes another way each time\n%s", schedules+1, s.trace())
		}
		schedules, s.repeated = schedules+1, 0
		more = s.advance()
	}
	return schedules
}

// search is the state of the depth-first search. Its choices lead to the schedule that runs next.
type search struct {
	bound   int
	choices []choice

	steps    []step // of the latest schedule
	astray   bool   // it left its choices
	repeated int    // how often the schedule has run again
}

// choice is the goroutine that was chosen at a step, by its place among those that could run.
type choice struct{ chosen, among int }

type step struct {
	goroutine string
	elapsed   time.Duration // in a step of time
	ended     bool          // it was the last step of the goroutine
	reached   []uintptr     // the callers of the point at its end; none where the goroutine waits for another one
}

// advance sets the choices of the next schedule, and reports whether there is one.
func (s *search) advance() bool {
	for len(s.choices) > 0 {
		last := &s.choices[len(s.choices)-1]
		if last.chosen++; last.chosen < last.among {
			return true
		}
		s.choices = s.choices[:len(s.choices)-1]
	}
	return false
}

// run runs one schedule.
func (s *search) run(w World) error {
	s.steps, s.astray = nil, false
	r := begin(w)
	var last *goroutine
	interruptions := 0
	for {
		able := r.able(last)
		if len(able) == 0 {
			if !r.awaitTimers() {
				break
			}
			continue
		}
		interrupts := able[0] == last
		if interrupts && interruptions >= s.bound {
			able = able[:1]
		}
		n := s.choose(len(s.steps), len(able))
		if interrupts && n > 0 {
			interruptions++
		}
		last = able[n]
		s.steps = append(s.steps, r.step(last))
	}
	s.astray = s.astray || len(s.steps) < len(s.choices)
	return errors.Join(r.end(), w.Check())
}

// choose returns which goroutine makes the step: the first one after the choices that were set before.
func (s *search) choose(step, among int) int {
	if step == len(s.choices) && !s.astray {
		s.choices = append(s.choices, choice{among: among})
	}
	if s.astray = s.astray || s.choices[step].among != among; s.astray {
		return 0
	}
	return s.choices[step].chosen
}

// trace returns the steps of the latest schedule, one a line.
func (s *search) trace() string {
	var lines strings.Builder
	for _, step := range s.steps {
		fmt.Fprintf(&lines, "  %s\n", step)
	}
	return lines.String()
}
