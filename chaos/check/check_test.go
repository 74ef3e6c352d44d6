package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/check"
	"github.com/seed74116694/fencelock/chaos/history"
)

func span(owner string, write bool, token uint64, called, granted, last int64) history.Span {
	return history.Span{Name: "n", Owner: owner, Write: write, Token: token, Called: called, Granted: granted, Last: last}
}

func TestExclusion(t *testing.T) {
	joined := span("a", true, 1, 12, 13, 18)
	joined.Joined = true
	for name, c := range map[string]struct {
		spans  []history.Span
		faults []history.Fault
		broken int
	}{
		"two writers": {spans: []history.Span{
			span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 19, 30),
		}, broken: 1},
		"a reader in a write": {spans: []history.Span{
			span("a", true, 1, 0, 10, 50), span("b", false, 2, 0, 19, 30),
		}, broken: 1},
		"a writer in a read": {spans: []history.Span{
			span("a", false, 1, 0, 10, 50), span("b", true, 2, 0, 19, 30),
		}, broken: 1},
		"two readers": {spans: []history.Span{span("a", false, 1, 0, 10, 50), span("b", false, 2, 0, 19, 30)}},
		"a long one over several": {spans: []history.Span{
			span("a", false, 1, 0, 10, 90), span("b", false, 2, 0, 12, 13), span("c", true, 3, 0, 80, 85),
		}, broken: 1},
		"one after the other": {spans: []history.Span{
			span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 20, 30),
		}},
		"one owner": {spans: []history.Span{span("a", true, 1, 0, 10, 20), joined}},
		"it never looked": {spans: []history.Span{
			span("a", true, 1, 0, 10, 0), span("b", true, 2, 0, 12, 30),
		}},
		"a fault that excuses": {
			spans:  []history.Span{span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 19, 30)},
			faults: []history.Fault{{From: 15, Until: 16, Excuses: true}},
		},
		"a fault that does not": {
			spans:  []history.Span{span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 19, 30)},
			faults: []history.Fault{{From: 15, Until: 16}}, broken: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, check.Exclusion(&history.History{Spans: c.spans, Faults: c.faults}), c.broken)
		})
	}
}

func TestTokens(t *testing.T) {
	joined := span("a", true, 5, 12, 13, 18)
	joined.Joined = true
	for name, c := range map[string]struct {
		first, second history.Span
		broken        int
	}{
		"they grow":            {first: span("a", true, 1, 0, 10, 20), second: span("b", true, 2, 20, 30, 40)},
		"a write goes back":    {first: span("a", true, 2, 0, 10, 20), second: span("b", true, 1, 20, 30, 40), broken: 1},
		"it had begun before":  {first: span("a", true, 2, 0, 10, 20), second: span("b", true, 1, 5, 30, 40)},
		"two writes share one": {first: span("a", true, 2, 0, 10, 20), second: span("b", true, 2, 5, 30, 40), broken: 1},
		"two reads share one":  {first: span("a", false, 2, 0, 10, 20), second: span("b", false, 2, 15, 30, 40)},
		"a read behind a read": {first: span("a", false, 3, 0, 10, 20), second: span("b", false, 2, 15, 30, 40)},
		"a read has a write's": {first: span("a", true, 3, 0, 10, 20), second: span("b", false, 3, 20, 30, 40), broken: 1},
		"a write has a read's": {first: span("a", false, 3, 0, 10, 20), second: span("b", true, 3, 20, 30, 40), broken: 1},
		"a join":               {first: span("a", true, 5, 0, 10, 20), second: joined},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{Spans: []history.Span{c.first, c.second}}
			require.Len(t, check.Tokens(h), c.broken)
		})
	}
}

func TestWaits(t *testing.T) {
	slack := check.Slack{Context: time.Second, Healed: 10 * time.Second}
	at := func(seconds float64) int64 { return int64(seconds * 1e9) }
	failure := history.Failure{Process: 1, Limit: at(1), Ended: at(3), Cause: "contended"}
	still := history.Fault{Kind: "still", Process: 1, From: at(1), Until: at(2.5)}
	late := history.Failure{Limit: at(60), Called: at(61), Ended: at(62), Cause: "no quorum"}
	for name, c := range map[string]struct {
		failures []history.Failure
		spans    []history.Span
		faults   []history.Fault
		broken   int
	}{
		"beyond its context":       {failures: []history.Failure{failure}, broken: 1},
		"the process stood still":  {failures: []history.Failure{failure}, faults: []history.Fault{still}},
		"fails though all is well": {failures: []history.Failure{late}, broken: 1},
		"waits though all is well": {spans: []history.Span{span("a", true, 1, 0, at(71), 0)}, broken: 1},
		"waits for a fault":        {spans: []history.Span{span("a", true, 1, 0, at(69), 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{
				Run: history.Run{Healed: at(60)}, Failures: c.failures, Spans: c.spans, Faults: c.faults,
			}
			require.Len(t, check.Waits(h, slack), c.broken)
		})
	}
}
