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
		require.NoError(t, e.Acquire(t.Context(), l, Request{Name: "a", Mode: fencing.Write, Terms: Terms{TTL: time.Minute}.Prepare()}))
		for i := range e.deaf {
			e.deaf[i].Store(&NodeFailure{Index: i, Err: errors.New("NOPERM")})
		}
		w := &Lease{}
		a := &acquisition{lease: w, entry: Wait, restarts: attempts}
		w.e, w.name, w.terms, w.asking = e, "b", Terms{TTL: time.Minute}.Prepare(), a
		w.keys, w.begun, w.limit = e.keysOf("b"), e.clock.Now(), clock.Never
		a.startHold("")
		require.True(t, e.register(w))
		_ = a.untilReady()
		w.mu.Lock()
		defer w.unlock()
		require.NotPanics(t, a.restart)
	})
}
