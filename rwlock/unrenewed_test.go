package rwlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A server that goes away is one line at growing intervals, however many leases it has. The loss of each is another.
func TestOutageOfManyLeasesIsNoFloodOfLines(t *testing.T) {
	const leases, limit = 50, 6
	inFakeTime(t, func(w *world) {
		var j testkit.Log
		p := w.Process(j.Option())
		count := func(part string) (n int) {
			time.Sleep(time.Nanosecond) // the log is written by a goroutine
			text := j.String()
			return strings.Count(text, part)
		}
		var all []*rwlock.Lease
		for i := range leases {
			all = append(all, p.Take(fmt.Sprint("n", i), rwlock.Write))
		}
		w.Mini.Stop()
		for _, lease := range all {
			w.UntilOver(lease)
		}
		told := count("does not renew leases")
		require.Positive(w, told)
		require.LessOrEqual(w, told, limit)
		require.Greater(w, int(p.Stats().RenewFailed), leases*limit, "each failure is counted")
		require.Positive(w, count(fmt.Sprintf("leases=%d ", leases)))
		require.Equal(w, leases, count("lease lost"))

		w.Mini.Recover()
		lease := p.Take("again", rwlock.Write)
		require.NoError(w, lease.Renew(w.Ctx))
		require.Equal(w, told, count("does not renew leases"))
		w.Mini.Stop()
		require.Error(w, lease.Renew(w.Ctx))
		require.Equal(w, told+1, count("does not renew leases"), "the next outage is told at once")
		w.UntilOver(lease)
		w.Mini.Recover()
	})
}

// Renew is told within the node timeout that a server does not answer, also where no renewal was planned.
func TestRenewOnDemandHasALimit(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Hour
		p := w.Process()
		lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Pass(time.Minute)
		p.Link.Hold(testredis.ToClient)
		began := time.Now()
		require.ErrorContains(w, lease.Renew(w.Ctx), "no reply")
		require.Equal(w, time.Second, time.Since(began))
		require.NoError(w, lease.Err())
		p.Link.Restore()
		require.NoError(w, lease.Renew(w.Ctx))
	})
}
