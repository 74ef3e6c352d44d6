package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestStuck(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	at := "REDIS_URL=redis://" + server.Addr()

	lives := testkit.Dial(t, "", server.Option())
	hold(t, lives, "lives", rwlock.WithMeta("web-1"), rwlock.WithTTL(3*time.Second))
	ended := hold(t, app, "ended", rwlock.WithMinHold(time.Hour))
	require.NoError(t, ended.Release(t.Context()))
	hold(t, app, "broken", rwlock.WithMeta("web-3"))
	breakForAMoment(t, app, "broken", 0)
	detached := hold(t, app, "detached")
	_, err := detached.Detach(t.Context())
	require.NoError(t, err)
	for name, says := range map[string]string{
		"lives":    `(?s)^lives: held for write by web-1 since .*web-1, hold \w{26}: its process lives: .*break lives -hold`,
		"dead":     `web-2, hold \w{26}: it was not renewed for \S+s: its process is dead.*The lock is free in \S+`,
		"ended":    `not stuck: it was released, and stands for its minimum, for (59|1h)`,
		"broken":   `broken by \S+: stuck; it ends`,
		"detached": `left to another process`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "dead" { // it lives for its TTL from here, however long the test has waited for its turn
				hold(t, app, name, rwlock.WithMeta("web-2"), rwlock.WithTTL(12*time.Second), rwlock.WithoutRenewal())
			}
			require.Regexp(t, says, exits(t, statusOK, at, "stuck", name, patience).out)
		})
	}
	require.Contains(t, exits(t, statusNo, at, "stuck", "free", patience).out, "free: free")
}
