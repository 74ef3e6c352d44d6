package redlock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// A quorum keeps the name for the minimum, whichever master is missing when the lease is taken, released or asked for.
func TestMinHoldOverAQuorum(t *testing.T) {
	const least = 30 * time.Second
	for name, c := range map[string]struct{ before, between, after int }{
		"all masters":                 {-1, -1, -1},
		"one is missing":              {0, 0, 0},
		"another one is missing then": {0, 0, 1},
		"one is missing at the end":   {-1, 1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				p, q := w.Process(), w.Process()
				p.WarmUp()
				q.WarmUp()
				missing := func(p *process, master int) {
					p.Restore(0, 1, 2)
					if master >= 0 {
						p.CutOff(master)
					}
				}
				missing(p, c.before)
				lease := p.Take("n", rwlock.Write, rwlock.WithMinHold(least))
				granted := time.Now()
				missing(p, c.between)
				_ = lease.Release(w.Ctx)
				missing(p, -1)
				w.Pass(5 * time.Second)
				missing(q, c.after)
				_, err := q.TryLock(w.Ctx, "n")
				require.Error(w, err)
				missing(q, -1)
				waits := q.Acquire(w.Ctx, "n", rwlock.Write)
				next := waits.Granted()
				require.GreaterOrEqual(w, waits.At.Sub(granted), least-10*time.Millisecond)
				require.Less(w, waits.At.Sub(granted), least+3*time.Second)
				w.Release(next)
			})
		})
	}
}

// A master that lost the hold and has it again keeps the first minimum.
func TestMinHoldOfAHoldThatWasRegained(t *testing.T) {
	const least = 30 * time.Second
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write, rwlock.WithMinHold(least))
		granted := time.Now()
		w.Pass(w.TTL / 2)
		for master := range 2 {
			w.Minis[master].Miniredis().Del("fencelock:{n}")
			w.Pass(w.TTL)
		}
		require.NoError(w, lease.Err())
		w.Release(lease)
		waits := q.Acquire(w.Ctx, "n", rwlock.Write)
		next := waits.Granted()
		require.GreaterOrEqual(w, waits.At.Sub(granted), least-10*time.Millisecond)
		require.Less(w, waits.At.Sub(granted), least+3*time.Second)
		w.Release(next)
	})
}

// A TTL beyond the quarantine is refused: a master that forgets the hold would vote before it has ended.
func TestSetTTLOverAQuorum(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.Process(redlock.WithQuarantine(time.Minute))
		lease := p.Take("n", rwlock.Write)
		refused := new(rwlock.OptionError)
		require.ErrorAs(w, lease.SetTTL(w.Ctx, time.Minute+1), &refused)
		require.Contains(w, refused.Rule, "quarantine")
		w.Pass(100 * time.Millisecond) // the last answers of the acquisition
		p.CutOff(1)
		require.NoError(w, lease.SetTTL(w.Ctx, time.Minute))
		require.Greater(w, time.Until(lease.Deadline()), 59*time.Second)
		p.Restore(1)
		w.Pass(time.Minute)
		require.NoError(w, lease.SetTTL(w.Ctx, w.TTL))
		require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
		w.Pass(100 * time.Millisecond)
		p.CutOff(0, 2)
		require.ErrorIs(w, lease.SetTTL(w.Ctx, w.TTL/2), rwlock.ErrNoQuorum)
		require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL/2)
		w.UntilOver(lease)
		require.Equal(w, rwlock.ReasonNotRenewed, w.Loss(lease.Err()).Reason)
	})
}

// That a master does not answer the renewal with the longer TTL is no reason to trust the others for the shorter one:
// what may still arrive there has the longer TTL.
func TestALongerTTLCountsThoughAMasterDoesNotAnswer(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const late = 50 * time.Millisecond
		p := w.Process(redlock.WithQuarantine(time.Minute))
		lease := p.Take("n", rwlock.Write)
		w.Pass(100 * time.Millisecond) // the last answers of the acquisition
		p.Links[0].Delay(late)
		p.Links[2].Delay(late)
		p.Links[1].Blackhole(testredis.ToClient)
		change := w.Call(w.Ctx, func(ctx context.Context) error { return lease.SetTTL(ctx, time.Minute) })
		w.Pass(late / 2)
		p.Links[1].Cut() // the renewal may have run
		require.NoError(w, change.Result())
		require.Greater(w, time.Until(lease.Deadline()), 59*time.Second)
	})
}

// A quorum grants the lock, and one of it fails before the lease is renewed. The third master, which is a moment late,
// is asked to renew what it has granted.
func TestALateGrantTakesPartInARenewal(t *testing.T) {
	const late = 20 * time.Millisecond
	calls := map[string]func(context.Context, *rwlock.Lease) error{
		"Renew":  func(ctx context.Context, lease *rwlock.Lease) error { return lease.Renew(ctx) },
		"SetTTL": func(ctx context.Context, lease *rwlock.Lease) error { return lease.SetTTL(ctx, time.Minute) },
		"Detach": func(ctx context.Context, lease *rwlock.Lease) error {
			_, err := lease.Detach(ctx, rwlock.WithTTL(time.Minute))
			return err
		},
	}
	for how, fail := range map[string]func(link *testredis.Link){
		"refuses": func(link *testredis.Link) { link.Refuse(); link.Cut() },
		"silent":  func(link *testredis.Link) { link.Blackhole(testredis.Both) },
	} {
		for name, call := range calls {
			t.Run(name+", one master "+how, func(t *testing.T) {
				inFakeTime(t, 3, func(w *world) {
					p := w.Process(redlock.WithQuarantine(time.Minute))
					p.Section("warm-up")
					w.Pass(time.Second)
					p.Links[2].Delay(late)
					lease := p.Take("n", rwlock.Write)
					fail(p.Links[1])
					require.NoError(w, call(w.Ctx, lease))
				})
			})
		}
	}
}

// A grant that comes while a round is under way is no answer to the round, though it lasts longer than the new TTL. A
// grant with another token is not renewed.
func TestALateGrantConfirmsNoRenewal(t *testing.T) {
	for name, counted := range map[string]time.Duration{"the token of the lease": 0, "a larger token": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				p := w.Process()
				p.Section("warm-up")
				w.Pass(time.Second)
				before := strconv.FormatInt(time.Now().Add(counted).UnixMicro(), 10)
				w.Minis[2].Miniredis().HSet("fencelock:{n}", "t", before, "tw", before)
				p.Links[2].Delay(20 * time.Millisecond)
				lease := p.Take("n", rwlock.Write)
				p.Links[1].Blackhole(testredis.Both)
				p.Links[2].DelayDir(testredis.ToServer, time.Hour) // but for what is on its way
				failed := new(rwlock.QuorumError)
				require.ErrorAs(w, lease.SetTTL(w.Ctx, w.TTL/4), &failed)
				require.Equal(w, 1, failed.Got)
			})
		})
	}
}
