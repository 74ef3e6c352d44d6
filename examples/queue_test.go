package examples_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// A worker is killed inside its job. Until then no other worker has that job, and afterwards one does it. Each job is
// done once.
func TestQueue(t *testing.T) {
	t.Parallel()
	const jobs = 20
	server := testredis.Start(t)
	push := []string{"RPUSH", "{jobs}:pending"}
	for job := range jobs {
		push = append(push, strconv.Itoa(job))
	}
	_, err := server.Command(push...)
	require.NoError(t, err)
	args := []string{"-redis", server.Addr(), "-ttl", "3s", "-poll", "20ms"}
	killed := start(t, 1, "queue", append(args, "-work", "1h")...)[0]
	first := killed.until("working")
	workers := start(t, 2, "queue", append(args, "-work", "0")...)
	for range jobs - 1 {
		_, line := firstOf(workers, "done")
		require.NotEqual(t, "done "+first, line, "a job that a worker is in")
	}
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	_, line := firstOf(workers, "done")
	require.Equal(t, "done "+first, line)

	done := map[string]int{}
	for _, p := range workers {
		for _, line := range p.kill() {
			if words := strings.Fields(line); words[0] == "done" {
				done[words[1]]++
			}
		}
	}
	require.Len(t, done, jobs)
	for job, n := range done {
		require.Equal(t, 1, n, "job %s", job)
	}
	left, err := server.Command("EXISTS", "{jobs}:pending")
	require.NoError(t, err)
	require.Zero(t, left)
}
