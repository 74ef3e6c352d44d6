package redlock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// An upgrade and older readers that each have the vote of another master do not wait for each other: whoever upgrades
// comes first on every master.
func TestAnUpgradeAndOlderReadersShareTheMasters(t *testing.T) {
	for name, down := range map[string]int{"all masters": 0, "a minority down": 1} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				upgrading := w.Process()
				reading := []*process{w.Process(), w.Process()}[down:]
				for _, p := range append(reading, upgrading) {
					p.Section("warm-up")
					p.CutOff(testkit.Span(3-down, down)...)
				}
				lease := upgrading.Take("n", rwlock.Read)

				// Each reader is the first on one master, and the upgrade on the last one that is up.
				var waiting []*testkit.Pending
				for i, p := range reading {
					upgrading.Links[i].Delay(50 * time.Millisecond)
					for _, link := range slices.Delete(slices.Clone(p.Links), i, i+1) {
						link.Delay(100 * time.Millisecond)
					}
					waiting = append(waiting, p.InTurn(w.Soon(30*time.Second), "n", rwlock.Read))
				}
				time.Sleep(2 * time.Millisecond) // the readers are older
				began := time.Now()
				require.NoError(w, lease.Upgrade(w.Soon(30*time.Second)))
				require.Less(w, time.Since(began), time.Second, "without a refresh")
				require.Equal(w, rwlock.Write, lease.Mode())
				w.Release(lease)
				for _, a := range waiting {
					a.Granted()
				}
			})
		})
	}
}

// An upgrade that is cut off from a quorum, and passed over there, has lost its place to one that came meanwhile. It is
// told so when it is back, whatever the other masters have granted it.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	for name, off := range map[string]int{"by all masters": 3, "by two": 2} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				first, other := w.Process(), w.Process()
				reads := func(p *process) *rwlock.Lease {
					lease := p.Acquire(w.Soon(30*time.Second), "n", rwlock.Read).Granted()
					return lease
				}
				upgrades := func(lease *rwlock.Lease) <-chan error {
					done := make(chan error, 1)
					go func() { done <- lease.Upgrade(w.Soon(30 * time.Second)) }()
					time.Sleep(10 * time.Millisecond) // it is queued everywhere
					return done
				}
				lease, leaves := reads(first), reads(other)
				passedOver := upgrades(lease)
				first.CutOff(testkit.Span(0, off)...)
				w.Release(leaves)
				later := reads(other)
				upgraded := upgrades(later)
				first.Restore(testkit.Span(0, off)...)
				require.ErrorIs(w, <-passedOver, rwlock.ErrUpgrade)
				w.Release(lease)
				require.NoError(w, <-upgraded)
				w.Release(later)
			})
		})
	}
}
