//go:build unix

package testredis_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
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

func TestServerRunsCommands(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		tests := []struct {
			cmd  []string
			want any
		}{
			{[]string{"SET", "k", "a\r\nb"}, "OK"},
			{[]string{"GET", "k"}, "a\r\nb"},
			{[]string{"GET", "missing"}, nil},
			{[]string{"INCRBY", "n", "-7"}, int64(-7)},
			{[]string{"MGET", "k", "missing"}, []any{"a\r\nb", nil}},
			{[]string{"SET", "empty", ""}, "OK"},
			{[]string{"GET", "empty"}, ""},
		}
		for _, tt := range tests {
			got, err := srv.Command(tt.cmd...)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		}
		_, err := srv.Command("INCR", "k")
		require.ErrorContains(t, err, "not an integer")
	})
}

func TestServerKillAndRestartEmpty(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		_, err := srv.Command("SET", "k", "v")
		require.NoError(t, err)
		addr, id := srv.Addr(), srv.Info("server")["run_id"]

		srv.Kill()
		_, err = srv.Command("PING")
		require.Error(t, err)
		srv.Kill()

		srv.Restart()
		require.Equal(t, addr, srv.Addr())
		require.NotEqual(t, id, srv.Info("server")["run_id"])
		got, err := srv.Command("GET", "k")
		require.NoError(t, err)
		require.Nil(t, got)
	})
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

func TestServerCountsCommands(t *testing.T) {
	onEachServer(t, func(t *testing.T, srv *testredis.Server) {
		require.Empty(t, srv.Stats())
		for range 3 {
			_, err := srv.Command("SET", "k", "v")
			require.NoError(t, err)
		}
		require.Equal(t, 3, srv.Stats()["set"].Calls)
		require.Equal(t, 3, srv.Stats()["set"].Calls)
		require.Len(t, srv.Stats(), 1)
		require.Positive(t, srv.Stats()["set"].Usec)
		srv.ResetStats()
		require.Empty(t, srv.Stats())
	})
}

func TestServerTakesArguments(t *testing.T) {
	srv := testredis.Start(t, "--requirepass", "secret")
	_, err := srv.Command("GET", "k")
	require.ErrorContains(t, err, "NOAUTH")
	option := srv.Option()
	option.Password = "secret"
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error())
}

func TestServerReplicaOf(t *testing.T) {
	onEachServer(t, func(t *testing.T, master *testredis.Server) {
		_, err := master.Command("SET", "k", "v")
		require.NoError(t, err)
		replica := testredis.StartBinary(t, master.Binary())
		replica.ReplicaOf(master)
		got, err := replica.Command("GET", "k")
		require.NoError(t, err)
		require.Equal(t, "v", got)
		_, err = replica.Command("SET", "k", "w")
		require.ErrorContains(t, err, "READONLY")
	})
}
