package rwlock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// What one call of a script may do, however many wait: of 64 readers that enter, each costs six commands and some words;
// a refresh names 200 waiters.
const (
	mostCommands = 64*6 + 16
	mostWords    = 64*32 + 200*4
)

// 5,000 goroutines of one process wait for a name. A server does one call at a time, so what they cost another name is
// the longest of their calls. It is counted in commands and words, which no slow machine changes; the times are shown.
func TestCrowdDoesNotHoldUpOtherNames(t *testing.T) {
	if testing.Short() {
		t.Skip("5,000 waiters on a real server")
	}
	const waiters, sections = 5_000, 300
	server := testredis.Start(t)
	w := &world{t: t, ctx: t.Context(), ttl: 10 * time.Second, server: server}
	holder, p, other := w.process(), w.process(), w.process()
	w.release(other.lock("other", rwlock.Write)) // the scripts are known from now on
	t.Logf("alone:             %v", other.sections("other", sections))

	held := holder.lock("crowd", rwlock.Write)
	all := make([]*pending, waiters)
	for i := range all {
		all[i] = p.acquire(w.ctx, "crowd", rwlock.Read)
	}
	w.eventually("all wait", func() bool { return w.command("ZCARD", "fencelock:{crowd}:q") == int64(waiters) })

	w.command("CONFIG", "SET", "slowlog-log-slower-than", "100")
	w.command("CONFIG", "SET", "slowlog-max-len", "100000")
	server.ResetStats()
	stop := monitor(t, server)
	refreshed := p.link.Calls("EVALSHA") + 2*waiters/200 // each twice, at least
	w.eventually("they are refreshed", func() bool {
		t.Logf("while they wait:   %v", other.sections("other", sections))
		return p.link.Calls("EVALSHA") >= refreshed
	})
	w.release(held)
	t.Logf("while they enter:  %v", other.sections("other", sections))
	for _, a := range all {
		a.granted()
	}
	for _, a := range all {
		w.release(a.lease)
	}
	calls := stop()

	longest := map[string]scriptCall{}
	for _, c := range calls {
		if c.name == "other" {
			require.LessOrEqual(t, c.commands, 4, "%+v", c)
		}
		require.LessOrEqual(t, c.commands, mostCommands, "%+v", c)
		require.LessOrEqual(t, c.words, mostWords, "%+v", c)
		key := c.name + " " + string(c.script)
		longest[key] = slices.MaxFunc([]scriptCall{longest[key], c}, func(x, y scriptCall) int { return x.words - y.words })
	}
	require.Contains(t, longest, "crowd "+string(scripts.Refresh))
	require.Contains(t, longest, "crowd "+string(scripts.Release))
	for key, c := range longest {
		t.Logf("most words of %s: %d, in %d commands", key, c.words, c.commands)
	}
	stat := server.Stats()["evalsha"]
	t.Logf("server time: %d us per call of %d; the longest %v", stat.Usec/int64(stat.Calls), stat.Calls, w.slowest())
}

// sections takes and gives back a lock n times, and returns the times that it took.
func (p *process) sections(name string, n int) []time.Duration {
	p.w.t.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		p.w.release(p.lock(name, rwlock.Write))
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return []time.Duration{took[n/2], took[n*99/100], took[n-1]}
}

// slowest returns the longest time that the server spent in one command, by its slow log.
func (w *world) slowest() (longest time.Duration) {
	for _, entry := range w.command("SLOWLOG", "GET", "-1").([]any) {
		fields := entry.([]any)
		if command := fields[3].([]any); command[0] == "EVALSHA" {
			longest = max(longest, time.Duration(fields[2].(int64))*time.Microsecond)
		}
	}
	return longest
}
