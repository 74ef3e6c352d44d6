package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// A client whose locks have another layout than those on the server is told both numbers, and has sent nothing for a
// lock. The layout that is there stays.
func TestAnotherLayoutIsRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		w.FlushAll()
		const marker = "fencelock:master"
		w.Command("HSET", marker, "layout", "7")
		p := w.Process()
		for how, take := range acquisitions(p.Locker) {
			_, err := take(w.Ctx, "n")
			var refused *rwlock.OptionError
			require.ErrorAs(w, err, &refused, how)
			require.ErrorIs(w, err, rwlock.ErrOption)
			require.ErrorContains(w, err, "keeps its locks in layout 7, this client in layout 2")
		}
		require.Equal(w, []string{marker}, w.Keys())
		require.Equal(w, "7", w.Command("HGET", marker, "layout"))
	})
}
