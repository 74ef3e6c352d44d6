package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Readers share a lock and no token: each may have read what another has not.
func TestConcurrentReadersHaveTokensOfTheirOwn(t *testing.T) {
	const readers, rounds = 16, 8
	for seed := range int64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 5)
				peers := s.crowd(readers, seed)
				b := newLedger(t, "readers")
				var work sync.WaitGroup
				for _, p := range peers {
					work.Go(func() {
						for range rounds {
							at := b.begin("shelf")
							lease, err := p.RLock(soon(t, 5*time.Second), "shelf")
							if err != nil {
								t.Error(err)
								return
							}
							b.acquired(at, lease)
							if err := lease.Release(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				begun := time.Now()
				work.Wait()
				t.Logf("%d readers, %d times each, in %v; the first master saw %v", readers, rounds, time.Since(begun), s.minis[0].AllCalls())
			})
		})
	}
}
