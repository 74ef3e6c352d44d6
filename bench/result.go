package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/test/judge"
)

// count is what the run counts.
type count int

const (
	writes count = iota
	reads
	nested
	handOffs
	stalls
	late
	refused
	failures
	counts
)

var rows = [counts]struct{ what, note string }{
	writes:   {"writes", "sections that had the lock for writing"},
	reads:    {"reads", "sections that had it for reading, beside others"},
	nested:   {"nested", "sections inside these, which join their lock"},
	handOffs: {"hand-offs", "of the lock from one holder to the next"},
	stalls:   {"stalled holders", "stopped past their lease, on purpose"},
	late:     {"late writes", "of theirs, each under an old token"},
	refused:  {"refused by a token", "of a newer access"},
	failures: {"failed calls", "of a locker or of the storage"},
}

// storage is the rule that a late write is refused, a trusted one is not, and no update is lost.
const storage judge.Rule = "storage"

// result is the outcome of a run.
type result struct {
	lasted      time.Duration
	interrupted bool
	gone        error // of the servers, if they did not last to the end
	n           [counts]atomic.Uint64
	failure     atomic.Pointer[error] // the first of the failed calls

	mu         sync.Mutex
	violations []judge.Violation
}

func (r *result) failed(err error) {
	r.n[failures].Add(1)
	r.failure.CompareAndSwap(nil, &err)
}

func (r *result) violated(rule judge.Rule, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, judge.Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
}

// verdict is nil if the run has proved the rules that it checks.
func (r *result) verdict() error {
	switch {
	case len(r.violations) > 0:
		return fmt.Errorf("%d violations", len(r.violations))
	case r.interrupted:
		return nil
	case r.gone != nil:
		return fmt.Errorf("the servers did not last to the end: %w", r.gone)
	case r.n[late].Load() == 0:
		return errors.New("the run shows nothing: no stalled holder came to its late write")
	}
	return nil
}

// table is the result, with a sentence that reads it: how many updates the copy without a guard has lost.
func (r *result) table(unfenced int) string {
	var w strings.Builder
	fmt.Fprintf(&w, "\nIn %.1f s%s\n", r.lasted.Seconds(), map[bool]string{true: ", interrupted"}[r.interrupted])
	for i := range rows {
		fmt.Fprintf(&w, "%-20s%7d  %s\n", rows[i].what, r.n[i].Load(), rows[i].note)
	}
	fmt.Fprintf(&w, "%-20s%7d  of exclusion, order and storage\n", "violations", len(r.violations))
	if first := r.failure.Load(); first != nil {
		fmt.Fprintf(&w, "first failure: %v\n", *first)
	}
	for _, v := range r.violations[:min(len(r.violations), 20)] {
		fmt.Fprintf(&w, "%s: %s\n", v.Rule, v.Text)
	}
	if n := r.n[late].Load(); n > 0 && len(r.violations) == 0 {
		fmt.Fprintf(&w, "\n%s stalled past the lease and wrote late: the copy that checks no token lost %s, "+
			"the guarded one none.\n", plural(int(n), "holder"), plural(unfenced, "update"))
	}
	return w.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
