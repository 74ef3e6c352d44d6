package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// A master that answers late, but within the node timeout, builds up no backlog: when another fails, the leases live on
// the late one.
func TestLateMasterStillCarriesItsLeases(t *testing.T) {
	for _, oneWay := range []time.Duration{75 * time.Millisecond, 195 * time.Millisecond} {
		t.Run(fmt.Sprint("round trip of ", 2*oneWay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 3)
				p := s.peer(time.Millisecond, rwlock.WithTTL(2*time.Second), redlock.WithNodeTimeout(400*time.Millisecond))
				p.warm(t)
				all := p.hold(t, "n", 600)
				p.links[2].Delay(oneWay)
				time.Sleep(10 * time.Second)
				requireHeld(t, all, "before another master failed")
				s.minis[0].Stop()
				time.Sleep(4 * time.Second)
				requireHeld(t, all, "after another master had failed")
			})
		})
	}
}

// What expires first is sent first: a few short leases among many long ones, over masters that all answer late.
func TestWhatExpiresFirstIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.peer(time.Millisecond, rwlock.WithTTL(10*time.Second), redlock.WithNodeTimeout(400*time.Millisecond))
		p.warm(t)
		p.hold(t, "long", 300)
		short := p.hold(t, "short", 20, rwlock.WithTTL(time.Second))
		for _, link := range p.links {
			link.Delay(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		requireHeld(t, short, "among many that expire later")
	})
}

func (p *peer) hold(t *testing.T, name string, n int, opts ...rwlock.LockOption) (all []*rwlock.Lease) {
	t.Helper()
	for i := range n {
		lease, err := p.Lock(t.Context(), fmt.Sprint(name, i), opts...)
		require.NoError(t, err)
		all = append(all, lease)
	}
	return all
}

func requireHeld(t *testing.T, all []*rwlock.Lease, when string) {
	t.Helper()
	lost := 0
	for _, lease := range all {
		if lease.Err() != nil {
			lost++
		}
	}
	require.Zero(t, lost, "lost of %d leases, %s", len(all), when)
}
