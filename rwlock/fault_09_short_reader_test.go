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
	for name, visit := range map[string]func(w *world, p *process){
		"enters":   func(_ *world, p *process) { p.lock("n", rwlock.Read, brief...) },
		"renews":   func(w *world, p *process) { require.NoError(w.t, p.lock("n", rwlock.Read, brief...).Renew(w.ctx)) },
		"releases": func(w *world, p *process) { w.release(p.lock("n", rwlock.Read, brief...)) },
		"expires":  func(w *world, p *process) { w.untilOver(p.lock("n", rwlock.Read, brief...)) },
		"crashes":  func(_ *world, p *process) { p.lock("n", rwlock.Read, brief...); p.die() },
		"is renewed and crashes": func(w *world, p *process) {
			p.lock("n", rwlock.Read, rwlock.WithTTL(short))
			w.pass(5 * short)
			p.die()
		},
		"waits to write and gives up": func(w *world, p *process) {
			err := p.acquire(w.ctx, "n", rwlock.Write, rwlock.WithTTL(short), rwlock.WithMaxWait(3*short)).failed()
			require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		},
		"dies waiting to write": func(w *world, p *process) { p.queue("n", rwlock.Write, brief...); p.die() },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p, visitor, q := w.process(), w.process(), w.process()
				entered := time.Now()
				long := p.lock("n", rwlock.Read, rwlock.WithoutRenewal()) // so nothing mends what a visitor breaks
				deadline := long.Deadline()
				p.die() // what holds it from now on is the server alone
				for range 3 {
					visit(w, visitor)
					visitor = w.process()
				}
				w.pass(4 * w.claim() / 3) // nobody touches the lock meanwhile
				require.NoError(w.t, long.Err())
				require.Len(w.t, w.inspect("n").Holders, 1, "the long lease is gone")
				require.Equal(w.t, deadline, long.Deadline())
				writer := q.queue("n", rwlock.Write)
				writer.granted()
				require.False(w.t, writer.at.Before(entered.Add(w.ttl)), "a writer is in after %v", writer.at.Sub(entered))
				require.Less(w.t, writer.at.Sub(entered), w.ttl+3*time.Millisecond)
			})
		})
	}
}
