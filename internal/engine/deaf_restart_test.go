package engine

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/testredis"
)

func TestRestartWhileDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clients []rueidis.Client
		for range 3 {
			clients = append(clients, testredis.NewMini(t).Client(t))
		}
		e := New(Config{
			Clients: clients, Prefix: "p", NodeTimeout: time.Second, ReleaseTimeout: time.Second, LongestTTL: time.Minute,
			Drift: 0.01, Logger: slog.New(slog.DiscardHandler), Clock: clock.System(),
		})
		defer e.Close()
		l := &Lease{}
		r := Request{Name: "a", Mode: fencing.Write, Terms: Terms{TTL: time.Minute}.Prepare()}
		require.NoError(t, e.Acquire(t.Context(), l, r))
		for i := range e.mailbox.deaf {
			e.mailbox.deaf[i].Store(&NodeFailure{Index: i, Err: errors.New("NOPERM")})
		}
		w := &Lease{}
		a := &acquisition{lease: w, entry: Wait, restarts: attempts}
		w.e, w.asking, w.limit, w.renewal.lease = e, a, clock.Never, w
		w.name, w.terms, w.keys, w.begun = "b", Terms{TTL: time.Minute}.Prepare(), e.keys.of("b"), e.clock.Now()
		w.hold.start("", e.mailbox.route())
		w.ballot.Start(Wait, len(e.masters))
		require.True(t, e.registry.add(w))
		_ = a.untilReady()
		w.mu.Lock()
		defer w.mu.Unlock()
		require.NotPanics(t, a.restart)
	})
}
