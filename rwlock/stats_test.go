package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

func TestStatsAsText(t *testing.T) {
	require.Equal(t, "held 0, waiting 0", rwlock.Stats{}.String())
	require.Equal(t, "held 3, waiting 1, unreachable 1, acquired 120, contended 7, failed 3 (contended 2, refused 1), "+
		"lost 1 (broken 1), renewed 9", rwlock.Stats{
		Held: 3, Waiting: 1, Unreachable: 1, Acquired: 120, Contended: 7,
		Failed: rwlock.FailedStats{Contended: 2, Refused: 1}, Lost: rwlock.LostStats{Broken: 1}, Renewed: 9,
	}.String())
}
