package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F9: one reader never shortens another's lease; a lock's keys live as long as the longest lease in them.

func TestF09ShortReaderShortensNobody(t *testing.T) {
	const short = 100 * time.Millisecond
	brief := []rwlock.LockOption{rwlock.WithTTL(short), rwlock.WithoutRenewal()}
	eachInFakeTime(t, map[string]func(w *world, p *process){
		"enters":   func(_ *world, p *process) { p.Take("n", rwlock.Read, brief...) },
		"renews":   func(w *world, p *process) { require.NoError(w, p.Take("n", rwlock.Read, brief...).Renew(w.Ctx)) },
		"releases": func(w *world, p *process) { w.Release(p.Take("n", rwlock.Read, brief...)) },
		"expires":  func(w *world, p *process) { w.UntilOver(p.Take("n", rwlock.Read, brief...)) },
		"crashes":  func(_ *world, p *process) { p.Take("n", rwlock.Read, brief...); p.Die() },
		"is renewed and crashes": func(w *world, p *process) {
			p.Take("n", rwlock.Read, rwlock.WithTTL(short))
			w.Pass(5 * short)
			p.Die()
		},
		"waits to write and gives up": func(w *world, p *process) {
			err := p.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithTTL(short), rwlock.WithMaxWait(3*short)).Failed()
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		},
		"dies waiting to write": func(w *world, p *process) { p.Queue("n", rwlock.Write, brief...); p.Die() },
	}, func(w *world, visit func(*world, *process)) {
		p, visitor, q := w.Process(), w.Process(), w.Process()
		entered := time.Now()
		long := p.Take("n", rwlock.Read, rwlock.WithoutRenewal()) // so nothing mends what a visitor breaks
		deadline := long.Deadline()
		p.Die() // what holds it from now on is the server alone
		for range 3 {
			visit(w, visitor)
			visitor = w.Process()
		}
		w.Pass(4 * w.Claim() / 3) // nobody touches the lock meanwhile
		require.NoError(w, long.Err())
		require.Len(w, w.Inspect("n").Holders, 1, "the long lease is gone")
		require.Equal(w, deadline, long.Deadline())
		writer := q.Queue("n", rwlock.Write)
		writer.Granted()
		require.False(w, writer.At.Before(entered.Add(w.TTL)), "a writer is in after %v", writer.At.Sub(entered))
		require.Less(w, writer.At.Sub(entered), w.TTL+3*time.Millisecond)
	})
}
