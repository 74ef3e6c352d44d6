package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A hand-off lasts for a short claim until it is confirmed. How often the confirmation is tried again follows from what
// is left of the claim, however long the TTL.

// spare is how long before its deadline a lease's link must be back at the latest.
const spare = 250 * time.Millisecond

var confirmationTTLs = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour}

// confirmationTroubles keep a process's commands from being answered well until mend is called.
var confirmationTroubles = map[string]func(w *world, p *process) (mend func()){
	"server refuses": func(w *world, _ *process) func() {
		w.mini.Miniredis().SetError("LOADING Redis is loading the dataset in memory")
		return func() { w.mini.Miniredis().SetError("") }
	},
	"link down": func(_ *world, p *process) func() {
		p.link.Refuse()
		p.link.Cut()
		return p.link.Restore
	},
	"link held": func(_ *world, p *process) func() {
		p.link.Hold(testredis.Both)
		return p.link.Restore
	},
}

func TestConfirmationIsTriedAgainInTime(t *testing.T) {
	for what, strike := range confirmationTroubles {
		for _, ttl := range confirmationTTLs {
			for _, opts := range [][]rwlock.LockOption{nil, {rwlock.WithoutRenewal()}} {
				name := what + ", TTL " + ttl.String()
				if opts != nil {
					name += ", without renewal"
				}
				t.Run(name, func(t *testing.T) {
					inFakeTime(t, func(w *world) {
						w.ttl = ttl
						confirmLate(w, strike, opts)
					})
				})
			}
		}
	}
}

// confirmLate hands a lock off to a process whose commands fail from that moment until shortly before the deadline.
func confirmLate(w *world, strike func(*world, *process) func(), opts []rwlock.LockOption) {
	holder, p := w.process(), w.process()
	held := holder.lock("n", rwlock.Write)
	waiter := p.queue("n", rwlock.Write, opts...)
	w.pass(1500 * time.Millisecond)
	p.link.DelayDir(testredis.ToClient, 5*time.Millisecond) // the message is on its way when the trouble begins
	w.release(held)
	lease := waiter.granted()
	mend := strike(w, p)
	p.link.Delay(0)
	confirmed := lease.Deadline().After(time.Now().Add(w.claim()))
	if confirmed || time.Until(lease.Deadline()) <= spare {
		mend()
		require.True(w.t, confirmed, "the deadline is in %v", time.Until(lease.Deadline()))
		return // it was confirmed together with the hand-off
	}
	w.pass(time.Until(lease.Deadline()) - spare)
	mend()
	w.pass(2 * spare)
	require.NoError(w.t, lease.Err(), "the trouble was over %v before the deadline", spare)
	require.Greater(w.t, time.Until(lease.Deadline()), w.ttl/2)
}
