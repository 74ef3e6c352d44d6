package redlock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// An upgrade and older readers that each have the vote of another master do not wait for each other: whoever upgrades
// comes first on every master.
func TestAnUpgradeAndOlderReadersShareTheMasters(t *testing.T) {
	for name, down := range map[string]int{"all masters": 0, "a minority down": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 3)
				upgrading := s.peer(time.Millisecond)
				reading := []*peer{s.peer(time.Millisecond), s.peer(time.Millisecond)}[down:]
				for _, p := range append(reading, upgrading) {
					p.warm(t)
					cutOff(p.links[3-down:])
				}
				lease, err := upgrading.RLock(t.Context(), "n")
				require.NoError(t, err)

				// Each reader is the first on one master, and the upgrade on the last one that is up.
				granted := make(chan error, len(reading))
				for i, p := range reading {
					upgrading.links[i].Delay(50 * time.Millisecond)
					for _, link := range slices.Delete(slices.Clone(p.links), i, i+1) {
						link.Delay(100 * time.Millisecond)
					}
					go func() {
						read, err := p.RLock(soon(t, 30*time.Second), "n")
						if err == nil {
							err = read.Release(t.Context())
						}
						granted <- err
					}()
				}
				time.Sleep(2 * time.Millisecond) // the readers are older
				began := time.Now()
				require.NoError(t, lease.Upgrade(soon(t, 30*time.Second)))
				require.Less(t, time.Since(began), time.Second, "without a refresh")
				require.Equal(t, rwlock.Write, lease.Mode())
				require.NoError(t, lease.Release(t.Context()))
				for range reading {
					require.NoError(t, <-granted)
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
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 3)
				first, other := s.peer(time.Millisecond), s.peer(time.Millisecond)
				reads := func(p *peer) *rwlock.Lease {
					lease, err := p.RLock(soon(t, 30*time.Second), "n")
					require.NoError(t, err)
					return lease
				}
				upgrades := func(lease *rwlock.Lease) <-chan error {
					done := make(chan error, 1)
					go func() { done <- lease.Upgrade(soon(t, 30*time.Second)) }()
					time.Sleep(10 * time.Millisecond) // it is queued everywhere
					return done
				}
				lease, leaves := reads(first), reads(other)
				passedOver := upgrades(lease)
				cutOff(first.links[:off])
				require.NoError(t, leaves.Release(t.Context()))
				later := reads(other)
				upgraded := upgrades(later)
				for _, link := range first.links[:off] {
					link.Restore()
				}
				require.ErrorIs(t, <-passedOver, rwlock.ErrUpgrade)
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, <-upgraded)
				require.NoError(t, later.Release(t.Context()))
			})
		})
	}
}
