package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// A leader's request is answered late, after the hold that a message has reported was lost. A reader that came after
// another client had written must not enter with the token of that hold.
func TestAReaderDoesNotEnterALostSection(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Second
		p, third := w.Process(), w.Process()
		makeListen(p)
		held := w.Process().Take("n", rwlock.Write)
		mu := p.RWMutex("n")
		p.Link.StallCommits()
		leader := w.Call(w.Ctx, mu.RLock)
		w.Release(held)                 // handed to the leader, whose request is not answered
		w.Pass(1500 * time.Millisecond) // the hold was not renewed, and has expired
		lease := third.Take("n", rwlock.Write)
		written := lease.Token()
		w.Release(lease)
		reader := w.Call(w.Ctx, mu.RLock)
		p.Link.ResumeCommits()
		require.NoError(t, leader.Result())
		require.NoError(t, reader.Result())
		require.Greater(t, mu.Token(), written)
	})
}
