package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// inOneAttempt has what a caller does once: for a free lock, or with a lease.
var inOneAttempt = map[string]func(w *world, p *process, held *rwlock.Lease) error{
	"TryLock": func(_ *world, p *process, _ *rwlock.Lease) error { return p.TryOnce("free") },
	"TryDo":   func(_ *world, p *process, _ *rwlock.Lease) error { return runs(p, "free") },
	"Renew":   func(w *world, _ *process, held *rwlock.Lease) error { return held.Renew(w.Ctx) },
	"SetTTL":  func(w *world, _ *process, held *rwlock.Lease) error { return held.SetTTL(w.Ctx, 7*time.Second) },
	"Downgrade": func(w *world, _ *process, held *rwlock.Lease) error {
		return errors.Join(held.Downgrade(w.Ctx), held.Err())
	},
	"Release": func(w *world, _ *process, held *rwlock.Lease) error { return held.Release(w.Ctx) },
}

// runs returns why a single attempt did not run its function.
func runs(p *process, name string) error {
	ran, err := p.TryDo(p.W.Ctx, name, func(context.Context) error { return nil })
	if err == nil && !ran {
		err = errors.New("it did not run")
	}
	return err
}

// All connections were replaced, as by a proxy that ends idle ones, and a quorum is up. The first attempt waits until
// the markers have been read over the new ones. The client may dial for it, or for its listener before.
func TestFirstAttemptAfterReconnecting(t *testing.T) {
	confirms := rwlock.WithConfirmedHandOff()
	ways := []time.Duration{time.Millisecond, 40 * time.Millisecond}
	for name, attempt := range inOneAttempt {
		t.Run(name, func(t *testing.T) {
			for _, way := range testredis.Few(ways[1:], ways) {
				for _, idle := range []time.Duration{0, 5 * time.Millisecond, time.Minute} {
					for _, opts := range [][]rwlock.Option{nil, {confirms}} {
						inFakeTime(t, 3, func(w *world) {
							p := w.ProcessOver(testkit.Net{Way: way, Tuned: true}, append(opts, rwlock.WithTTL(2*time.Minute))...)
							var lease *rwlock.Lease
							if name[0] != 'T' {
								lease = p.Take("x", rwlock.Write)
							} else {
								p.Section("x")
							}
							time.Sleep(time.Second)
							for _, l := range p.Links {
								l.Cut()
							}
							w.Settle()
							time.Sleep(idle)
							began := time.Now()
							require.NoError(w, attempt(w, p, lease), "way %v, idle %v, %d options", way, idle, len(opts))
							require.Less(w, time.Since(began), time.Second)
						})
					}
				}
			}
		})
	}
}

// What asks for no vote counts whatever connection its answer came over: the look at the markers, which tells itself
// whether to look once more, and Inspect.
func TestALookDuringReconnecting(t *testing.T) {
	for _, idle := range []time.Duration{0, 5 * time.Millisecond, time.Minute} {
		inFakeTime(t, 3, func(w *world) {
			p := w.ProcessOver(testkit.Net{Way: time.Millisecond, Tuned: true})
			p.Section("x")
			time.Sleep(time.Second)
			for _, l := range p.Links {
				l.Cut()
			}
			w.Settle()
			time.Sleep(idle)
			state, err := p.Inspect(w.Ctx, "x")
			require.NoError(w, err, "idle %v", idle)
			for _, m := range state.Masters {
				require.NoError(w, m.Err, "idle %v", idle)
			}
		})
	}
}

// The first request may have been granted over the connection that was lost, and the second one writes nothing: a lock
// that counts only once it is confirmed is confirmed also then.
func TestRepeatedAttemptIsConfirmed(t *testing.T) {
	for _, confirms := range []bool{false, true} {
		inFakeTime(t, 3, func(w *world) {
			if confirms {
				w.Opts = append(w.Opts, rwlock.WithConfirmedHandOff())
			}
			p := w.ProcessOver(tuned)
			p.WarmUp()
			renewals := make([]int, len(p.Links)) // of each master
			for i, l := range p.Links {
				l.Cut()
				l.OnCommand(func(cmd []string) {
					if w.ScriptOf(cmd) == scripts.Renew {
						renewals[i]++
					}
				})
			}
			w.Settle()
			lease := p.Take("x", rwlock.Write)
			before := 0
			for _, n := range renewals {
				before += min(n, 1)
			}
			w.Release(lease)
			require.Equal(w, confirms, before >= 2, "%d masters have confirmed it", before)
		})
	}
}

// A release has freed the lock, whatever connection its answer came over: it is neither unknown, nor sent again, which
// would find the hold gone.
func TestReleaseOverAReplacedConnection(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessOver(testkit.Net{Way: 10 * time.Millisecond, Tuned: true})
		p.Section("warm-up")
		lease := p.Take("x", rwlock.Write)
		time.AfterFunc(5*time.Millisecond, func() {
			for _, c := range p.Clients {
				go func() {
					d, back := c.Dedicate()
					defer back()
					_ = d.Do(w.Ctx, d.B().Ping().Build()).Error()
				}()
			}
		})
		w.ResetCalls()
		require.NoError(w, lease.Release(w.Ctx))
		w.Pass(time.Second)
		require.Equal(w, []int{1, 1, 1}, w.ScriptCalls(), "releases")
	})
}
