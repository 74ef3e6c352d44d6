package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F4: renewal is tried again until the deadline, and each failure is reported.

// outages are ways to make renewals fail for a while. Each returns its own end.
var outages = map[string]func(w *world, p *process) (end func()){
	"the server is down":      func(w *world, _ *process) func() { w.Mini.Stop(); return w.Mini.Recover },
	"the link is down":        func(_ *world, p *process) func() { p.Die(); return p.Link.Restore },
	"the server stands still": func(w *world, _ *process) func() { w.Mini.Freeze(); return w.Mini.Thaw },
	"bytes wait":              func(_ *world, p *process) func() { p.Link.Hold(testredis.Both); return p.Link.Restore },
	"replies vanish": func(_ *world, p *process) func() {
		p.Link.Blackhole(testredis.ToClient)
		return p.Link.Restore
	},
	"LOADING":  refusal("LOADING Redis is loading the dataset in memory"),
	"READONLY": refusal("READONLY You can't write against a read only replica."),
	"OOM":      refusal("OOM command not allowed when used memory > 'maxmemory'."),
	"NOPERM":   refusal("NOPERM this user has no permissions to run the 'evalsha' command"),
	"ERR":      refusal("ERR no reason given"),
}

func refusal(text string) func(*world, *process) func() {
	return func(w *world, _ *process) func() {
		w.Mini.Miniredis().SetError(text)
		return func() { w.Mini.Miniredis().SetError("") }
	}
}

func TestF04RenewalOutlivesAnOutage(t *testing.T) {
	eachInFakeTime(t, outages, func(w *world, outage func(*world, *process) func()) {
		var book testkit.Log
		p := w.Process(book.Option())
		lease := p.Take("n", rwlock.Write)
		before := lease.Deadline()
		end := outage(w, p)
		w.Pass(w.TTL * 6 / 10) // the first renewal was due at a third
		require.NoError(w, lease.Err())
		require.Equal(w, before, lease.Deadline())
		require.Positive(w, p.Stats().RenewFailed)
		require.NotEmpty(w, book.About("n"), "the failure is reported")
		end()

		w.Pass(3 * w.TTL)
		require.NoError(w, lease.Err(), "it was not tried again")
		require.Greater(w, p.Stats().Renewed, uint64(5))
		reported := len(book.About("n"))
		w.Pass(w.TTL)
		require.Len(w, book.About("n"), reported, "it still fails")
		require.Len(w, w.Inspect("n").Holders, 1)
		w.Release(lease)
	})
}
