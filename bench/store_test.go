package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestStoreRefusesWhatIsLate(t *testing.T) {
	s := newStore([]string{"a"})
	fence := func(token fencing.Token) fencing.Fence {
		return fencing.Fence{Resource: "a", Token: token, Mode: rwlock.Write}
	}
	value, err := s.load(t.Context(), fence(1))
	require.NoError(t, err)
	require.NoError(t, s.save(t.Context(), fence(1), value+1))
	value, err = s.load(t.Context(), fence(2))
	require.NoError(t, err)
	require.EqualValues(t, 1, value)
	require.ErrorIs(t, s.save(t.Context(), fence(1), 7), fencing.ErrStale, "loading was the newer one's claim")
	require.Empty(t, s.lostUpdates())
}

func TestStoreFindsLostUpdates(t *testing.T) {
	s := newStore([]string{"a", "b"})
	f := fencing.Fence{Resource: "a", Token: 1, Mode: rwlock.Write}
	require.NoError(t, s.save(t.Context(), f, 1))
	require.NoError(t, s.save(t.Context(), f, 1), "both added one to what they had read")
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
