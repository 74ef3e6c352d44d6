package explore

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

// running has the goroutines of a schedule.
type running struct {
	world  World
	root   int // the id of the search's own goroutine
	all    []*goroutine
	waited time.Duration // of the patience

	mu     sync.Mutex // guards what follows
	byID   map[int]*goroutine
	locked []*goroutine // make no steps, and wait for a lock
	over   bool
}

// goroutine makes steps, or waits for a lock. The search reads its fields while it is parked or blocked, or has ended.
type goroutine struct {
	name    string
	resume  chan struct{}
	parked  bool
	ended   bool
	other   bool            // started by the code under test: see World.Started
	ready   func() bool     // whether the lock is free that it takes next; nil if it takes none
	reached []uintptr       // the callers of its latest point
	elapses []time.Duration // what is left of the steps, if this is the time
}

// begin starts the goroutines of a world. Each waits for its first step.
func begin(w World) *running {
	r := &running{world: w, root: goroutineID(), byID: map[int]*goroutine{}}
	schedulenoise.OnPoint(r.point)
	for i, body := range w.Goroutines {
		g := r.add(fmt.Sprint("goroutine ", i))
		g.parked = true
		go func() {
			defer func() { g.ended = true }()
			r.mu.Lock()
			r.byID[goroutineID()] = g
			r.mu.Unlock()
			r.park(g)
			body()
		}()
	}
	if len(w.Elapses) > 0 {
		g := r.add("time")
		g.parked, g.elapses = true, w.Elapses
	}
	r.settle()
	return r
}

func (r *running) add(name string) *goroutine {
	g := &goroutine{name: name, resume: make(chan struct{})}
	r.all = append(r.all, g)
	return g
}

// point stops the calling goroutine at a point until the search resumes it, if the point ends one of its steps. A
// goroutine that makes no steps waits there for the lock: synctest.Wait would not return if it waited for the mutex.
func (r *running) point(ready func() bool) {
	if g := r.stops(ready); g != nil {
		r.park(g)
	}
}

// park waits for the next step. The goroutines of a world that still wait when the schedule is over have failed, and
// end.
func (r *running) park(g *goroutine) {
	<-g.resume
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if over && !g.other {
		runtime.Goexit()
	}
}

// stops returns the goroutine that waits at the point, or nil. The search's own goroutine passes the points of the
// world's preparation and check.
func (r *running) stops(ready func() bool) *goroutine {
	id := goroutineID()
	if id == r.root {
		return nil
	}
	counts, blocked := r.counts(), ready != nil && !ready()
	if !counts && !blocked {
		return nil
	}
	callers := make([]uintptr, 32)
	callers = callers[:runtime.Callers(4, callers)]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	g, name := r.byID[id], r.otherIn(callers)
	if g != nil && g.other && name == "" {
		g = nil
	}
	if g == nil && counts && name != "" {
		g = r.add(name)
		g.other = true
		r.byID[id] = g
	}
	switch {
	case g != nil && (counts || blocked):
		g.ready, g.reached, g.parked = ready, callers, true
		return g
	case blocked:
		g = &goroutine{resume: make(chan struct{}), ready: ready, other: true}
		r.locked = append(r.locked, g)
		return g
	default:
		return nil
	}
}

// counts reports whether the point ends steps of the goroutines that make steps.
func (r *running) counts() bool {
	if len(r.world.Within) == 0 {
		return true
	}
	callers := make([]uintptr, 8)
	innermost := places(callers[:runtime.Callers(5, callers)])[0]
	return isIn(innermost, r.world.Within)
}

// otherIn returns the name of the outermost function in which goroutines make steps that the code under test has
// started, "" if none is among the callers.
func (r *running) otherIn(callers []uintptr) string {
	if len(r.world.Started) == 0 {
		return ""
	}
	frames := places(callers)
	for _, name := range r.world.Started {
		if slices.ContainsFunc(frames, func(f runtime.Frame) bool { return isIn(f, []string{name}) }) {
			return name
		}
	}
	return ""
}

func isIn(f runtime.Frame, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(f.Function, name) })
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

// step has a goroutine go on to its next point, or time go by.
func (r *running) step(g *goroutine) step {
	if len(g.elapses) > 0 {
		s := step{goroutine: g.name, elapsed: g.elapses[0]}
		g.elapses = g.elapses[1:]
		g.ended = len(g.elapses) == 0
		time.Sleep(s.elapsed)
		r.settle()
		return s
	}
	g.parked, g.reached = false, nil
	g.resume <- struct{}{}
	r.settle()
	return step{goroutine: g.name, ended: g.ended, reached: g.reached}
}

// settle returns when every goroutine is parked or blocked, and no goroutine without steps waits for a free lock.
func (r *running) settle() {
	for synctest.Wait(); ; synctest.Wait() {
		i := slices.IndexFunc(r.locked, func(g *goroutine) bool { return g.ready() })
		if i < 0 {
			return
		}
		g := r.locked[i]
		r.locked = slices.Delete(r.locked, i, i+1)
		g.resume <- struct{}{}
	}
}

// awaitTimers has some time go by if goroutines still wait, and reports whether it did.
func (r *running) awaitTimers() bool {
	left := r.world.Patience - r.waited
	if left <= 0 || !slices.ContainsFunc(r.all, func(g *goroutine) bool { return !g.ended && !g.other }) {
		return false
	}
	pause := min(left, time.Second)
	r.waited += pause
	time.Sleep(pause)
	r.settle()
	return true
}

// end resumes every goroutine, and names a goroutine that has not ended by itself.
func (r *running) end() (err error) {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	for _, g := range r.all {
		if !g.ended && (!g.other || g.parked) {
			err = fmt.Errorf("%s waits for ever", g.name)
		}
		if g.parked && len(g.elapses) == 0 && !g.ended {
			close(g.resume)
		}
	}
	for _, g := range r.locked {
		close(g.resume)
	}
	return err
}

// places returns the functions outside of the machinery, the innermost first.
func places(callers []uintptr) (all []runtime.Frame) {
	frames := runtime.CallersFrames(callers)
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if !strings.Contains(frame.Function, "/schedulenoise.") && !strings.Contains(frame.Function, "/explore.") &&
			frame.File != "" && !strings.HasPrefix(frame.Function, "runtime.") {
			all = append(all, frame)
		}
	}
	return all
}

// String names the goroutine, and the two innermost lines at which its step ended.
func (s step) String() string {
	if s.elapsed > 0 {
		return fmt.Sprintf("%v go by", s.elapsed)
	}
	if s.ended {
		return s.goroutine + " to its end"
	}
	if len(s.reached) == 0 {
		return s.goroutine + " until it waits"
	}
	var lines []string
	frames := places(s.reached)
	for _, frame := range frames[:min(2, len(frames))] {
		name := path.Join(path.Base(path.Dir(frame.File)), path.Base(frame.File))
		lines = append(lines, fmt.Sprintf("%s:%d", name, frame.Line))
	}
	return s.goroutine + " to " + strings.Join(lines, " from ")
}
