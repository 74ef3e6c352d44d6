//go:build unix

package testredis_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// onEachServer runs a test on every server binary that is installed.
func onEachServer(t *testing.T, test func(t *testing.T, srv *testredis.Server)) {
	t.Helper()
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			test(t, testredis.StartBinary(t, binary))
		})
	}
}

func TestServerFreezeAndThaw(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		client := srv.Client(t)
		srv.Freeze()
		err := client.Do(within(t, time.Second), set(client, "k", "v")).Error()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		srv.Thaw()
		got, err := client.Do(t.Context(), get(client, "k")).ToString()
		require.NoError(t, err)
		require.Equal(t, "v", got, "the command was under way and ran late")

		srv.Freeze()
		srv.Kill()
		_, err = srv.Command("PING")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}
