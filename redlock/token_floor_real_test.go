package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// restarts are those of a set whose locks are used meanwhile.
var restarts = map[string]func(s *realSet, use func()){
	"one after the other, the third fails": func(s *realSet, use func()) {
		for i := range 2 {
			s.servers[i].Restart()
			for until := time.Now().Add(2 * floorTTL); time.Now().Before(until); time.Sleep(floorTTL / 10) {
				use()
			}
		}
		s.servers[2].Freeze()
	},
	"all at once": func(s *realSet, use func()) {
		for _, server := range s.servers {
			server.Restart()
		}
		use()
	},
}

// Tokens also go forward on servers that restart from their last saves, of which each knows by its run id that it may
// have lost something.
func TestTokensGoForwardOverRestartsFromOldSaves(t *testing.T) {
	t.Parallel() // servers start and are waited for
	for what, restart := range restarts {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newRealSet(t, 3)
			opts := []rwlock.Option{rwlock.WithTTL(floorTTL), redlock.WithNodeTimeout(floorTTL / 4)}
			a, fresh := s.peer(nil, opts...), s.peer(nil, append(opts, clocked(-2*time.Minute, 1))...)
			a.use(t, "x")
			for _, server := range s.servers {
				command(t, server, "SAVE")
			}
			time.Sleep(time.Second) // what is counted from here on is lost
			var last fencing.Token
			for range 3 {
				last = max(last, take(t, a))
			}
			restart(s, func() {
				if lease, err := a.Lock(soon(t, 10*floorTTL), "y"); err == nil {
					_ = lease.Release(t.Context())
				}
			})
			token := take(t, fresh)
			for _, server := range s.servers {
				server.Thaw()
			}
			require.Greater(t, token, last, "lower by %v", time.Duration(last-token)*time.Microsecond)
		})
	}
}

// take returns the next token. That a busy machine loses its lease, or does not confirm its release in time, is no
// matter.
func take(t *testing.T, p *realPeer) fencing.Token {
	t.Helper()
	lease, err := p.Lock(soon(t, time.Minute), "x")
	require.NoError(t, err)
	if err := lease.Release(t.Context()); !rwlock.Indeterminate(err) && !errors.Is(err, rwlock.ErrLost) {
		require.NoError(t, err)
	}
	return lease.Token()
}
