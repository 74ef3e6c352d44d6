package server_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
)

func TestPin(t *testing.T) {
	s := testredis.Start(t)
	cpus := func(pid int) int {
		var set unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(pid, &set))
		return set.Count()
	}
	pid, err := strconv.Atoi(s.Info("server")["process_id"])
	require.NoError(t, err)
	mine, theirs, procs := cpus(0), cpus(pid), runtime.GOMAXPROCS(0)
	undo := expect.NoError(server.Pin(s)).In(t)
	require.Equal(t, 1, cpus(0))
	require.Equal(t, 1, cpus(pid))
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	require.NoError(t, undo())
	require.Equal(t, mine, cpus(0))
	require.Equal(t, theirs, cpus(pid))
	require.Equal(t, procs, runtime.GOMAXPROCS(0))
	require.Positive(t, server.ClientCPU())
}
