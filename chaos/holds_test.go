package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/history"
	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
)

// A record of holds has one part for each token, and knows whether a script or the master itself has ended it.
func TestHoldsOfAMaster(t *testing.T) {
	began := time.Now()
	standing := func(token int64) []scriptfuzz.Standing {
		return []scriptfuzz.Standing{{ID: "a", Token: token, Expiry: began.Add(time.Minute).UnixMilli()}}
	}
	for name, c := range map[string]struct {
		changes []scriptfuzz.Change // after the grant of token 5
		skew    time.Duration       // of the master's clock, before them
		want    []history.Hold
	}{
		"it stands": {want: []history.Hold{{Token: 5}}},
		"it is renewed": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(5)}},
			want:    []history.Hold{{Token: 5}},
		},
		"its master's clock goes ahead": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(5)}}, skew: 2 * time.Minute,
			want: []history.Hold{{Token: 5}},
		},
		"it is released": {changes: []scriptfuzz.Change{{Before: standing(5)}}, want: []history.Hold{{Token: 5}}},
		"it is raised": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(7)}},
			want:    []history.Hold{{Token: 5}, {Token: 7}},
		},
		"it is broken": {
			changes: []scriptfuzz.Change{{Before: standing(5), After: standing(0)}},
			want:    []history.Hold{{Token: 5, Ends: true}},
		},
		"its master lost": {changes: []scriptfuzz.Change{{}}, want: []history.Hold{{Token: 5, Lost: true}}},
		"a crowd":         {changes: []scriptfuzz.Change{{Crowd: true}}, want: []history.Hold{{Crowd: true}, {Token: 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHolds(2)
			for _, change := range append([]scriptfuzz.Change{{After: standing(5)}}, c.changes...) {
				change.Key, change.Micros = "fencelock:{n}", time.Now().UnixMicro()
				r.change(change)
				r.skewed(c.skew)
			}
			all := r.take()
			require.Len(t, all, len(c.want))
			for i, hold := range all {
				require.Equal(t, "n", hold.Name)
				require.Equal(t, 2, hold.Master)
				require.LessOrEqual(t, hold.From, hold.Until)
				hold.Name, hold.Master, hold.ID, hold.From, hold.Until = "", 0, "", 0, 0
				require.Equal(t, c.want[i], hold)
			}
		})
	}
}
