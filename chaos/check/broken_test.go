package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/check"
	"github.com/seed74116694/fencelock/chaos/history"
)

func TestExclusionAfterABreak(t *testing.T) {
	for name, c := range map[string]struct {
		by     history.Break
		broken int
	}{
		"at once":          {by: history.Break{Name: "n", Token: 1, Now: true, Called: 12}},
		"too late":         {by: history.Break{Name: "n", Token: 1, Now: true, Called: 16}, broken: 1},
		"not at once":      {by: history.Break{Name: "n", Token: 1, Called: 12}, broken: 1},
		"another lock":     {by: history.Break{Name: "m", Token: 1, Now: true, Called: 12}, broken: 1},
		"the later holder": {by: history.Break{Name: "n", Token: 2, Now: true, Called: 17}, broken: 1},
	} {
		spans := []history.Span{span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 15, 30)}
		found, _ := check.Exclusion(&history.History{Spans: spans, Breaks: []history.Break{c.by}})
		require.Len(t, found, c.broken, name)
	}
}

// A lease is lost as broken only after an operator has broken it.
func TestBrokenLeases(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		by     history.Break
		broken int
	}{
		"broken":       {"broken", history.Break{Name: "n", Called: at(4)}, 0},
		"by nobody":    {"broken", history.Break{Name: "m", Called: at(4)}, 1},
		"too late":     {"broken", history.Break{Name: "n", Called: at(6)}, 1},
		"other reason": {"gone", history.Break{Name: "n", Called: at(4)}, 1},
	} {
		s := span("a", true, 1, 0, at(1), at(5))
		s.Lost, s.Reason = at(5), c.reason
		h := &history.History{Spans: []history.Span{s}, Breaks: []history.Break{c.by}}
		h.Run.Masters, h.Run.TTL = 1, int64(time.Second)
		found, _ := check.Kept(h, check.Busy)
		require.Len(t, found, c.broken, name)
	}
}

// No lock is granted before the minimum of the hold before is over.
func TestMinimum(t *testing.T) {
	for name, c := range map[string]struct {
		next   history.Span
		by     []history.Break
		faults []history.Fault
		broken int
	}{
		"after it":        {next: span("b", true, 2, at(1), at(3), at(4))},
		"before it":       {next: span("b", true, 2, at(1), at(2.5), at(4)), broken: 1},
		"reads beside it": {next: span("b", false, 2, at(1), at(2.5), at(4))},
		"broken":          {next: span("b", true, 2, at(1), at(2.5), at(4)), by: []history.Break{{Name: "n", Token: 1}}},
		"ended, and broken": {
			next: span("b", true, 2, at(1), at(2.5), at(4)), by: []history.Break{{Name: "n", Called: at(2)}},
		},
		"another is broken": {
			next: span("b", true, 2, at(1), at(2.5), at(4)), by: []history.Break{{Name: "m", Called: at(2)}}, broken: 1,
		},
		"forgotten": {
			next:   span("b", true, 2, at(1), at(2.5), at(4)),
			faults: []history.Fault{{From: at(1.5), Until: at(1.6), Forgets: true}},
		},
	} {
		s := span("a", false, 1, at(1), at(1.1), at(1.2))
		s.MinHold = int64(2 * time.Second)
		h := &history.History{Spans: []history.Span{s, c.next}, Breaks: c.by, Faults: c.faults}
		found, _ := check.Minimum(h, 0.01)
		require.Len(t, found, c.broken, name)
	}
}
