package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/test/judge"
)

// result is the outcome of a run.
type result struct {
	mu          sync.Mutex
	head        string // what ran
	interrupted bool
	gone        error          // of the servers, if they did not last to the end
	taken       map[string]int // locks, by the kind of the section
	lasted      time.Duration

	handedOff, lost  uint64
	stalls           uint64 // leases lost on purpose; the end of the run may cut off the late write
	lateWrites       uint64
	refused          uint64 // stale accesses, late writes among them
	lostUnfenced     uint64 // updates
	failures         uint64
	failure          error // the first
	violations       map[judge.Rule]uint64
	violationDetails []string // of the first few
}

// storage is the rule that a late write is refused, a trusted one is not, and no update is lost.
const storage judge.Rule = "storage"

func newResult(head string) *result {
	return &result{head: head, taken: map[string]int{}, violations: map[judge.Rule]uint64{}}
}

func (r *result) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *result) took(kind string) { r.note(func() { r.taken[kind]++ }) }

func (r *result) failed(err error) {
	r.note(func() {
		if r.failures++; r.failure == nil {
			r.failure = err
		}
	})
}

func (r *result) violated(rule judge.Rule, format string, args ...any) {
	r.note(func() {
		if r.violations[rule]++; len(r.violationDetails) < 20 {
			r.violationDetails = append(r.violationDetails, string(rule)+": "+fmt.Sprintf(format, args...))
		}
	})
}

func (r *result) broken() uint64 {
	return r.violations[judge.Exclusion] + r.violations[judge.Order] + r.violations[storage]
}

// verdict is nil if the run has proved the rules that it checks.
func (r *result) verdict() error {
	switch {
	case r.broken() > 0:
		return fmt.Errorf("%d violations", r.broken())
	case r.interrupted:
		return nil
	case r.gone != nil:
		return fmt.Errorf("the servers did not last to the end: %w", r.gone)
	case len(r.taken) == 0:
		return errors.New("the run shows nothing: no lock was acquired")
	case r.lateWrites == 0:
		return errors.New("the run shows nothing: no stalled holder came to its late write")
	}
	return nil
}

// String is the result as a table, with a sentence that reads it.
func (r *result) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "\nIn %.1f s", r.lasted.Seconds())
	if r.interrupted {
		w.WriteString(", interrupted")
	}
	w.WriteString("\n")
	for _, row := range []struct {
		what string
		n    int
		note string
	}{
		{"writes", r.taken["write"], "sections that had the lock for writing"},
		{"reads", r.taken["read"], "sections that had it for reading, beside others"},
		{"nested", r.taken["nested"], "sections inside these, which join their lock"},
		{"hand-offs", int(r.handedOff), "of the lock from one holder to the next"},
		{"stalled holders", int(r.stalls), "stopped past their lease, on purpose"},
		{"late writes", int(r.lateWrites), "of theirs, each under an old token"},
		{"refused by a token", int(r.refused), "of a newer access"},
		{"failed calls", int(r.failures), ""},
		{"violations", int(r.broken()), fmt.Sprintf("exclusion %d, order %d, storage %d",
			r.violations[judge.Exclusion], r.violations[judge.Order], r.violations[storage])},
	} {
		fmt.Fprintln(&w, strings.TrimRight(fmt.Sprintf("%-20s%7d  %s", row.what, row.n, row.note), " "))
	}
	if r.lost > r.stalls {
		fmt.Fprintf(&w, "%-20s%7d  of other holders: is the machine busy?\n", "leases ended", r.lost-r.stalls)
	}
	if r.failure != nil {
		fmt.Fprintf(&w, "first failure: %v\n", r.failure)
	}
	for _, detail := range r.violationDetails {
		fmt.Fprintln(&w, detail)
	}
	if r.lateWrites > 0 && r.broken() == 0 {
		fmt.Fprintf(&w, "\n%s stalled past the lease and wrote late: the copy that checks no token lost %s, "+
			"the guarded one none.\n", plural(r.lateWrites, "holder"), plural(r.lostUnfenced, "update"))
	}
	return w.String()
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
