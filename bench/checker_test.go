package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// belief is a lease whose holder believes what the test wants.
type belief struct {
	name  string
	mode  rwlock.Mode
	token fencing.Token
	err   error
}

func (b *belief) Name() string         { return b.name }
func (b *belief) Mode() rwlock.Mode    { return b.mode }
func (b *belief) Token() fencing.Token { return b.token }
func (b *belief) Err() error           { return b.err }

func reads(token fencing.Token) *belief { return &belief{name: "a", mode: rwlock.Read, token: token} }

func writes(token fencing.Token) *belief { return &belief{name: "a", mode: rwlock.Write, token: token} }

func lost(b *belief) *belief {
	b.err = rwlock.ErrLost
	return b
}

// watch lets a checker see what a test plants, and returns how many violations of each kind it found.
func watch(plant func(r *checker)) [breaches]uint64 {
	score := new(scoreboard)
	plant(newChecker(score))
	return score.violations
}

func TestCheckerAgreesWithACorrectLock(t *testing.T) {
	require.Zero(t, watch(func(r *checker) {
		first, second, writer := reads(10), reads(11), writes(12)
		r.enter(second, r.newest("a", rwlock.Read)) // readers enter in any order
		r.enter(first, 0)
		r.leave(first)
		r.leave(second)
		r.enter(writer, 11)
		r.enter(&belief{name: "b", mode: rwlock.Write, token: 3}, 0) // another name
		lost(writer)
		r.enter(writes(15), 12) // beside one that knows it is lost
		r.leave(writer)
	}))
}

func TestCheckerFindsBrokenExclusion(t *testing.T) {
	for name, pair := range map[string][2]*belief{
		"writer beside writer": {writes(1), writes(2)},
		"reader beside writer": {writes(1), reads(2)},
		"writer beside reader": {reads(1), writes(2)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, [breaches]uint64{exclusion: 1}, watch(func(r *checker) {
				r.enter(pair[0], 0)
				r.enter(pair[1], 0)
			}))
			require.Zero(t, watch(func(r *checker) {
				r.enter(lost(pair[0]), 0)
				r.enter(pair[1], 0)
			}), "one of them knows that it is lost")
		})
	}
}

func TestCheckerFindsTokensOutOfOrder(t *testing.T) {
	for name, plant := range map[string]func(r *checker){
		"writer after a newer writer": func(r *checker) { past(r, writes(5)); r.enter(writes(4), 0) },
		"writer after a newer reader": func(r *checker) { past(r, reads(5)); r.enter(writes(4), 0) },
		"reader after a newer writer": func(r *checker) { past(r, writes(5)); r.enter(reads(4), 0) },
		"two writers, one token":      func(r *checker) { past(r, writes(5)); r.enter(writes(5), 0) },
		"writer that began after a newer reader": func(r *checker) {
			r.enter(lost(reads(5)), 0)
			r.enter(lost(writes(4)), r.newest("a", rwlock.Write))
		},
		"lost at once, and old": func(r *checker) { r.enter(lost(reads(4)), 5) },
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, [breaches]uint64{tokenOrder: 1}, watch(plant))
		})
	}
	require.Zero(t, watch(func(r *checker) {
		past(r, writes(5))
		r.enter(lost(writes(4)), 0)
	}), "a lease that was lost before its holder could enter comes late, and is no evidence")
	require.Zero(t, watch(func(r *checker) {
		r.enter(reads(5), 0)
		r.enter(reads(5), r.newest("a", rwlock.Read))
		r.enter(reads(4), r.newest("a", rwlock.Read))
	}), "readers need no order among themselves")
}

// past lets a lease enter and leave.
func past(r *checker, b *belief) {
	r.enter(b, 0)
	r.leave(b)
}

func TestStoreRefusesWhatIsLate(t *testing.T) {
	s := newStore([]string{"a"}, nil)
	fence := func(token fencing.Token) fencing.Fence {
		return fencing.Fence{Resource: "a", Token: token, Mode: rwlock.Write}
	}
	first, err := s.load(t.Context(), fence(1))
	require.NoError(t, err)
	require.NoError(t, s.increment(t.Context(), fence(1), first))
	second, err := s.load(t.Context(), fence(2))
	require.NoError(t, err)
	require.Equal(t, reading{guarded: 1, bare: 1}, second)
	require.NoError(t, s.increment(t.Context(), fence(2), second))
	require.Zero(t, s.lostWithoutGuard())
	require.ErrorIs(t, s.increment(t.Context(), fence(1), first), fencing.ErrStale, "loading was the newer one's claim")
	require.Empty(t, s.lostUpdates())
	require.EqualValues(t, 2, s.lostWithoutGuard(), "3 writes of one each, and 1 is left")
}

func TestStoreFindsLostUpdates(t *testing.T) {
	s := newStore([]string{"a", "b"}, nil)
	f := fencing.Fence{Resource: "a", Token: 1, Mode: rwlock.Write}
	require.NoError(t, s.increment(t.Context(), f, reading{}))
	require.NoError(t, s.increment(t.Context(), f, reading{}), "both added one to what they had read")
	require.Equal(t, []string{`"a": 1 after 2 accepted writes of one each`}, s.lostUpdates())
}

func TestBeatsCoverAllNames(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	for workers := 1; workers <= 12; workers++ {
		seen := map[string]bool{}
		for w := range workers {
			mine := beat(names, w, workers)
			require.NotEmpty(t, mine)
			for _, name := range mine {
				seen[name] = true
			}
		}
		require.Len(t, seen, len(names), "%d workers", workers)
	}
}
