//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/lab/peer"
)

func granted(name string, asked, got time.Duration) grant { return grant{name, asked, got} }

// A gap begins with the time that is looked at, or with a grant, and ends with the next one or with that time.
func TestGaps(t *testing.T) {
	all := []grant{granted("a", 0, 1), granted("b", 0, 4), granted("a", 2, 5), granted("a", 6, 9)}
	require.Equal(t, time.Duration(4), longestGap(moments(all), 0, 10))
	require.Equal(t, time.Duration(7), longestGap(moments(all), 4, 9+7), "to the end")
	require.Equal(t, time.Duration(2), longestGap(moments(all), 2, 6), "what is outside does not count")
	require.Equal(t, time.Duration(10), longestGap(nil, 0, 10))
	require.Equal(t, time.Duration(6), worstGap(all, []string{"a", "b"}, 0, 10))

	require.Equal(t, all[1:2], of(all, []string{"b"}))
}

// Each strike is looked at for itself, and the one with the most above the server's own gap counts.
func TestTheWorstStrikeCounts(t *testing.T) {
	const ms = time.Millisecond
	c := newCrowd(nil)
	c.workers = []*worker{{crowd: c, grants: []grant{granted("a", 0, 90*ms), granted("a", 0, 130*ms)}}}
	written := []write{{0, 10 * ms}, {0, 20 * ms}, {1, 100 * ms}, {1, 110 * ms}}
	m := gaps(c, written, []string{"a"}, []time.Duration{0, 100 * ms, 140 * ms})
	require.InDelta(t, 10, m[gapAbove], 1e-9, "90 of 80, then 30 of 30")
	require.InDelta(t, 90, m[gapOfLocks], 1e-9)
	require.InDelta(t, 80, m[gapOfServer], 1e-9)
	require.InDelta(t, 90, m["one name"], 1e-9)
}

func TestTwoMasters(t *testing.T) {
	written := []write{{0, time.Second}, {0, 2 * time.Second}, {1, 2300 * time.Millisecond}, {1, 4 * time.Second}}
	require.False(t, twoMasters(written, time.Second))
	require.True(t, twoMasters(written, 2200*time.Millisecond))
	require.False(t, twoMasters(written, 4*time.Second))
}

// ticket is a hold that is trusted until it is lost.
type ticket struct {
	peer.Hold
	token uint64
	lost  bool
}

func (h *ticket) Lost() bool           { return h.lost }
func (h *ticket) Token() fencing.Token { return fencing.Token(h.token) }

func TestTheReferee(t *testing.T) {
	var r *referee
	enter := func(at judge.Attempt, hold peer.Hold) *visit {
		in := &visit{hold: hold}
		r.Acquired(at, in)
		return in
	}
	r = newReferee()
	first := &ticket{token: 5}
	in := enter(r.Begin("a"), first)
	enter(r.Begin("b"), &ticket{token: 1})
	enter(r.Begin("a"), &ticket{token: 7})
	all, open := r.violations()
	require.Equal(t, 1, all)
	require.Len(t, open, 1)
	in.unknown.Store(true)
	_, open = r.violations()
	require.Empty(t, open, "the servers did not know the first any more")

	first.lost = true
	r = newReferee()
	enter(r.Begin("a"), first)
	second := enter(r.Begin("a"), &ticket{token: 9})
	all, _ = r.violations()
	require.Zero(t, all, "its holder knew")
	require.Zero(t, r.order)
	second.left.Store(true)
	enter(r.Begin("a"), &ticket{token: 9})
	require.Positive(t, r.order)
	all, _ = r.violations()
	require.Zero(t, all, "the second has left")

	r = newReferee()
	enter(r.Begin("a"), held{}).left.Store(true)
	enter(r.Begin("a"), held{})
	require.Zero(t, r.order, "a library without tokens")
	enter(r.Begin("a"), held{})
	all, _ = r.violations()
	require.Equal(t, 1, all)
}

// held is a hold of which its library tells nothing.
type held struct{ peer.Hold }
