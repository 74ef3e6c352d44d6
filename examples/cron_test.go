package examples_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// Three processes run a job that does not end. The first one is killed at its tick, the second one is asked to end, and
// others run later ticks. No tick runs twice.
func TestCron(t *testing.T) {
	t.Parallel()
	args := []string{"-redis", testredis.Start(t).Addr(), "-period", "100ms"}
	three := start(t, 3, "cron", append(args, "-work", "1h")...)
	killed, _ := firstOf(three, "running")
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	without := func(p *process) {
		three = slices.DeleteFunc(three, func(q *process) bool { return q == p })
	}
	without(killed)
	stopped, _ := firstOf(three, "running")
	stopped.signal(syscall.SIGTERM)
	require.NoError(t, stopped.wait())
	without(stopped)
	three[0].until("running")

	next := start(t, 2, "cron", append(args, "-work", "0")...)
	for range 3 {
		firstOf(next, "done")
	}
	runs := map[string]int{}
	for _, p := range append(next, killed, stopped, three[0]) {
		for _, line := range p.kill() {
			if words := strings.Fields(line); words[0] == "running" {
				runs[words[1]]++
			}
		}
	}
	for tick, n := range runs {
		require.Equal(t, 1, n, "runs of the tick %s", tick)
	}
	require.GreaterOrEqual(t, len(runs), 6)
}
