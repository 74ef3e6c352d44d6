package main

import (
	"slices"
	"time"
)

// between returns the grants from one time to another.
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

// waits returns the waiting time of each grant, in ascending order.
func waits(all []grant) []time.Duration {
	var out []time.Duration
	for _, g := range all {
		out = append(out, g.wait())
	}
	slices.Sort(out)
	return out
}

// moments returns the times of the grants.
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

// worstGap is the longest gap of any of the names.
func worstGap(all []grant, names []string, from, to time.Duration) (longest time.Duration) {
	for _, name := range names {
		longest = max(longest, longestGap(moments(of(all, []string{name})), from, to))
	}
	return longest
}
