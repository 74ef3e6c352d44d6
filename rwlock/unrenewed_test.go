package rwlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server that goes away is one line at growing intervals, however many leases it has. The loss of each is another.
func TestOutageOfManyLeasesIsNoFloodOfLines(t *testing.T) {
	const leases, limit = 50, 6
	inFakeTime(t, func(w *world) {
		var j journal
		p := w.process(j.option())
		count := func(part string) (n int) {
			time.Sleep(time.Nanosecond) // the log is written by a goroutine
			text, _ := j.read()
			return strings.Count(text, part)
		}
		var all []*rwlock.Lease
		for i := range leases {
			all = append(all, p.lock(fmt.Sprint("n", i), rwlock.Write))
		}
		w.mini.Stop()
		for _, lease := range all {
			w.untilOver(lease)
		}
		told := count("does not renew leases")
		require.Positive(w.t, told)
		require.LessOrEqual(w.t, told, limit)
		require.Greater(w.t, int(p.Stats().RenewFailed), leases*limit, "each failure is counted")
		require.Positive(w.t, count(fmt.Sprintf("leases=%d ", leases)))
		require.Equal(w.t, leases, count("lease lost"))

		w.mini.Recover()
		lease := p.lock("again", rwlock.Write)
		require.NoError(w.t, lease.Renew(w.ctx))
		require.Equal(w.t, told, count("does not renew leases"))
		w.mini.Stop()
		require.Error(w.t, lease.Renew(w.ctx))
		require.Equal(w.t, told+1, count("does not renew leases"), "the next outage is told at once")
		w.untilOver(lease)
		w.mini.Recover()
	})
}

// Renew is told within the node timeout that a server does not answer, also where no renewal was planned.
func TestRenewOnDemandHasALimit(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.ttl = time.Hour
		p := w.process()
		lease := p.lock("n", rwlock.Write, rwlock.WithoutRenewal())
		w.pass(time.Minute)
		p.link.Hold(testredis.ToClient)
		began := time.Now()
		require.ErrorContains(w.t, lease.Renew(w.ctx), "no reply")
		require.Equal(w.t, time.Second, time.Since(began))
		require.NoError(w.t, lease.Err())
		p.link.Restore()
		require.NoError(w.t, lease.Renew(w.ctx))
	})
}
