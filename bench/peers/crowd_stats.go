package main

import (
	"slices"
	"time"
)

// between returns the grants that were got within the time.
func between(all []grant, from, to time.Duration) []grant {
	return slices.Collect(func(yield func(grant) bool) {
		for _, g := range all {
			if from <= g.got && g.got < to && !yield(g) {
				return
			}
		}
	})
}

// of returns the grants of the names.
func of(all []grant, names []string) []grant {
	return slices.Collect(func(yield func(grant) bool) {
		for _, g := range all {
			if slices.Contains(names, g.name) && !yield(g) {
				return
			}
		}
	})
}

// waits returns how long each grant was waited for, in ascending order.
func waits(all []grant) []time.Duration {
	var out []time.Duration
	for _, g := range all {
		out = append(out, g.wait())
	}
	slices.Sort(out)
	return out
}

// quantile is of times in ascending order; 0 of nothing.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// moments returns when the grants were got.
func moments(all []grant) []time.Duration {
	var out []time.Duration
	for _, g := range all {
		out = append(out, g.got)
	}
	return out
}

// longestGap returns the longest time without any of the moments, which ascend, from one time to another.
func longestGap(moments []time.Duration, from, to time.Duration) (longest time.Duration) {
	last := from
	for _, at := range moments {
		if from <= at && at < to {
			longest = max(longest, at-last)
			last = at
		}
	}
	return max(longest, to-last)
}

// worstGap is the longest gap that one of the names had.
func worstGap(all []grant, names []string, from, to time.Duration) (longest time.Duration) {
	for _, name := range names {
		longest = max(longest, longestGap(moments(of(all, []string{name})), from, to))
	}
	return longest
}
