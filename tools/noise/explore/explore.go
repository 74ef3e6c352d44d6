// Package explore runs a few goroutines in every order of their steps. A step is what a goroutine does from one point
// to the next: the overlay of command noise puts a point after each operation that orders goroutines, and before each
// lock.
//
// Only one goroutine makes a step at a time, and testing/synctest reports when it has reached the next point or blocks.
// The schedules are searched depth first, from the one in which each goroutine runs as long as it can.
package explore

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/seed74116694/fencelock/tools/noise/schedulenoise"
)

// World is what one schedule runs: goroutines, and the check of what they have left.
type World struct {
	Goroutines []func()
	Check      func() error
}

// Unbounded lets goroutines be interrupted as often as they have points.
const Unbounded = 1 << 30

// Run runs a new world for each schedule in which a goroutine that could go on is interrupted at most so many times. It
// returns the number of schedules. If a goroutine still waits after a schedule, or the check fails, the test ends with
// the trace of the schedule.
func Run(t *testing.T, interruptions int, world func() World) (schedules int) {
	t.Helper()
	s := &search{bound: interruptions}
	defer schedulenoise.OnPoint(nil)
	for more := true; more; more = s.advance() {
		schedules++
		synctest.Test(t, func(*testing.T) {
			if err := s.run(world()); err != nil { // logged here: where a goroutine waits for ever, Test panics
				t.Errorf("schedule %d: %v\n%s", schedules, err, s.trace())
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	return schedules
}

// search is the state of the depth-first search. Its choices lead to the schedule that runs next.
type search struct {
	bound   int
	choices []choice
	steps   []step // of the latest schedule
}

// choice is the goroutine that was chosen at a step, by its place among those that could run.
type choice struct{ chosen, among int }

type step struct {
	goroutine int
	reached   []uintptr // the callers of the point at its end; nil at the end of the goroutine
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
	s.steps = nil
	r := &running{}
	schedulenoise.OnPoint(r.park)
	for i, body := range w.Goroutines {
		g := &goroutine{index: i, resume: make(chan struct{})}
		r.all = append(r.all, g)
		go func() {
			defer func() { g.ended, g.reached = true, nil }()
			r.byID.Store(goroutineID(), g)
			schedulenoise.Point()
			body()
		}()
	}
	synctest.Wait()
	var last *goroutine
	interruptions := 0
	for {
		able := r.able(last)
		if len(able) == 0 {
			break
		}
		interrupts := able[0] == last
		if interrupts && interruptions >= s.bound {
			able = able[:1]
		}
		n, err := s.choose(len(s.steps), len(able))
		if err != nil {
			return err
		}
		if interrupts && n > 0 {
			interruptions++
		}
		last = able[n]
		last.parked = false
		last.resume <- struct{}{}
		synctest.Wait()
		s.steps = append(s.steps, step{last.index, last.reached})
	}
	return errors.Join(r.end(), w.Check())
}

// choose returns which goroutine makes the step: the first one after the choices that were set before.
func (s *search) choose(step, among int) (int, error) {
	if step == len(s.choices) {
		s.choices = append(s.choices, choice{among: among})
	}
	if s.choices[step].among != among {
		return 0, fmt.Errorf("step %d has %d goroutines to choose from, had %d", step, among, s.choices[step].among)
	}
	return s.choices[step].chosen, nil
}

// running has the goroutines of a schedule.
type running struct {
	all  []*goroutine
	byID sync.Map
	over bool
}

// goroutine is one of them. The search reads its fields while it is parked or blocked, or has ended.
type goroutine struct {
	index   int
	resume  chan struct{}
	parked  bool
	ended   bool
	ready   func() bool // whether the lock is free that it takes next; nil if it takes none
	reached []uintptr
}

// park stops the calling goroutine at a point until the search resumes it. The test's own goroutine passes the points
// of the world's preparation and check.
func (r *running) park(ready func() bool) {
	found, ok := r.byID.Load(goroutineID())
	if !ok || r.over {
		return
	}
	g := found.(*goroutine)
	g.reached = make([]uintptr, 8)
	g.reached = g.reached[:runtime.Callers(3, g.reached)]
	g.ready = ready
	g.parked = true
	<-g.resume
	if r.over {
		runtime.Goexit()
	}
}

// end ends the goroutines that wait for a lock, and names one that has not ended by itself.
func (r *running) end() (err error) {
	r.over = true
	for _, g := range r.all {
		if g.ended {
			continue
		}
		err = fmt.Errorf("goroutine %d waits for ever", g.index)
		if g.parked {
			close(g.resume)
		}
	}
	return err
}

// able returns the goroutines that can make a step, the last one first.
func (r *running) able(last *goroutine) (able []*goroutine) {
	for _, g := range r.all {
		if g.parked && !g.ended && (g.ready == nil || g.ready()) {
			able = append(able, g)
		}
	}
	slices.SortStableFunc(able, func(a, b *goroutine) int {
		switch {
		case a == last:
			return -1
		case b == last:
			return 1
		}
		return 0
	})
	return able
}

func goroutineID() int {
	text := make([]byte, 64)
	text = bytes.TrimPrefix(text[:runtime.Stack(text, false)], []byte("goroutine "))
	id, err := strconv.Atoi(string(text[:bytes.IndexByte(text, ' ')]))
	if err != nil {
		panic(err)
	}
	return id
}

// trace returns the steps of the latest schedule, one a line: the goroutine, and the point at which its step ended.
func (s *search) trace() string {
	var lines strings.Builder
	for _, step := range s.steps {
		fmt.Fprintf(&lines, "  goroutine %d to %s\n", step.goroutine, place(step.reached))
	}
	return lines.String()
}

// place returns the two innermost lines outside of the machinery.
func place(callers []uintptr) string {
	if len(callers) == 0 {
		return "its end"
	}
	var places []string
	frames := runtime.CallersFrames(callers)
	for more := true; more && len(places) < 2; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if !strings.Contains(frame.Function, "/schedulenoise.") && !strings.Contains(frame.Function, "/explore.") &&
			frame.File != "" && !strings.HasPrefix(frame.Function, "runtime.") {
			name := path.Join(path.Base(path.Dir(frame.File)), path.Base(frame.File))
			places = append(places, fmt.Sprintf("%s:%d", name, frame.Line))
		}
	}
	return strings.Join(places, " from ")
}
