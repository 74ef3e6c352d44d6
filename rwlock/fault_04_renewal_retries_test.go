package rwlock_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F4: renewal is tried again until the deadline, and each failure is reported.

// outages are ways to make renewals fail for a while. Each returns its own end.
var outages = []struct {
	name  string
	begin func(w *world, p *process) (end func())
}{
	{"the server refuses connections", func(w *world, _ *process) func() { w.mini.Stop(); return w.mini.Recover }},
	{"the link refuses connections", func(_ *world, p *process) func() { p.die(); return p.link.Restore }},
	{"the server stands still", func(w *world, _ *process) func() { w.mini.Freeze(); return w.mini.Thaw }},
	{"bytes wait", func(_ *world, p *process) func() { p.link.Hold(testredis.Both); return p.link.Restore }},
	{"replies vanish", func(_ *world, p *process) func() {
		p.link.Blackhole(testredis.ToClient)
		return p.link.Restore
	}},
	{"LOADING", refusal("LOADING Redis is loading the dataset in memory")},
	{"READONLY", refusal("READONLY You can't write against a read only replica.")},
	{"OOM", refusal("OOM command not allowed when used memory > 'maxmemory'.")},
	{"NOPERM", refusal("NOPERM this user has no permissions to run the 'evalsha' command")},
	{"ERR", refusal("ERR no reason given")},
}

func refusal(text string) func(*world, *process) func() {
	return func(w *world, _ *process) func() {
		w.mini.Miniredis().SetError(text)
		return func() { w.mini.Miniredis().SetError("") }
	}
}

func TestF04RenewalOutlivesAnOutage(t *testing.T) {
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				var book logbook
				p := w.process(rwlock.WithLogger(slog.New(&book)))
				lease := p.lock("n", rwlock.Write)
				before := lease.Deadline()
				end := outage.begin(w, p)
				w.pass(w.ttl * 6 / 10) // the first renewal was due at a third
				require.NoError(w.t, lease.Err())
				require.Equal(w.t, before, lease.Deadline())
				failed := p.Stats().RenewFailed
				require.Positive(w.t, failed)
				require.NotEmpty(w.t, book.about("n"), "the failure is reported")
				end()

				w.pass(3 * w.ttl)
				require.NoError(w.t, lease.Err(), "it was not tried again")
				require.Greater(w.t, p.Stats().Renewed, uint64(5))
				reported := len(book.about("n"))
				w.pass(w.ttl)
				require.Len(w.t, book.about("n"), reported, "it still fails")
				require.Len(w.t, w.inspect("n").Holders, 1)
				w.release(lease)
			})
		})
	}
}

func TestF04RenewalThatNeverSucceedsEndsAtTheDeadline(t *testing.T) {
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				lease := p.lock("n", rwlock.Write)
				deadline := lease.Deadline()
				end := outage.begin(w, p)
				w.untilOver(lease)
				require.Equal(w.t, deadline, time.Now())
				loss := w.loss(lease.Err())
				require.Equal(w.t, rwlock.NoQuorum, loss.Reason)
				require.Error(w.t, loss.Err, "the last failure")
				require.Contains(w.t, lease.Err().Error(), loss.Err.Error())
				require.Greater(w.t, p.Stats().RenewFailed, uint64(1), "it was tried until then")
				end()
			})
		})
	}
}

// A single failure must not put the next try off for long: a third of the TTL was gone already.
func TestF04FailedRenewalIsRepeatedSoon(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		require.NoError(w.t, lease.Renew(w.ctx))
		renewals := make(chan time.Duration, 100) // since the start
		start := time.Now()
		p.link.OnCommand(func(cmd []string) {
			if running(scripts.Renew)(cmd) {
				renewals <- time.Since(start)
			}
		})
		<-p.link.DropNextReply(running(scripts.Renew))
		failed := <-renewals
		again := <-renewals
		require.Less(w.t, again-failed, w.ttl/10)
		w.settle()
		require.NoError(w.t, lease.Err())
		w.release(lease)
	})
}
