package rwlock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// What one call of a script does at the most, however many wait: for each of 64 readers that enter six commands of 24
// words in all, for each of 200 that it is asked about one command and five words, its field twice, its record, and its
// member with the place, and some more for itself.
const (
	perRefresh   = 200
	mostCommands = 64*6 + perRefresh + 8
	mostWords    = 64*24 + perRefresh*5 + 32
)

// 5,000 goroutines of one process wait for a name. A server runs one call at a time, so what another name suffers is
// the longest of their calls. Its length is counted in commands and words, which no slow machine changes; the times are
// shown.
func TestCrowdDoesNotHoldUpOtherNames(t *testing.T) {
	if testing.Short() {
		t.Skip("5,000 waiters on a real server")
	}
	const waiters = 5_000
	server := testredis.Start(t)
	w := testkit.OnServers(t, server)
	w.TTL = 10 * time.Second
	holder, p, other := w.Process(), w.Process(), w.Process()
	w.Release(other.Take("other", rwlock.Write)) // the scripts are known from now on
	timeSections(other, "alone", 1_000, func() bool { return true })

	held := holder.Take("crowd", rwlock.Write)
	all := make([]*pending, waiters)
	for i := range all {
		all[i] = p.Acquire(w.Ctx, "crowd", rwlock.Read)
	}
	w.Eventually("all wait", func() bool { return w.Command("ZCARD", "fencelock:{crowd}:q") == int64(waiters) })

	w.Command("CONFIG", "SET", "slowlog-max-len", "100000")
	w.Command("CONFIG", "SET", "slowlog-log-slower-than", "100")
	stop := monitor(t, server)
	refreshed := p.Link.Calls("EVALSHA") + waiters/perRefresh
	timeSections(other, "while they wait", 1_000, func() bool { return p.Link.Calls("EVALSHA") >= refreshed })
	w.Release(held)
	timeSections(other, "while they enter", 100, func() bool { return p.Stats().Waiting == 0 })
	for _, a := range all {
		if err := a.Granted().Release(w.Ctx); err != nil {
			require.ErrorIs(t, err, rwlock.ErrLost, "a slow machine does not confirm 5,000 hand-offs in time")
		}
	}

	longest := longestCalls(t, stop())
	for _, script := range []scripts.Name{scripts.Refresh, scripts.Release} {
		require.Contains(t, longest, script)
		t.Logf("the longest %s: %d commands, %d words", script, longest[script].commands, longest[script].words)
	}
	logSlow(w)
}

// longestCalls returns the longest call of each script. None may exceed its bound.
func longestCalls(t *testing.T, calls []scriptCall) map[scripts.Name]scriptCall {
	t.Helper()
	longest := map[scripts.Name]scriptCall{}
	for _, c := range calls {
		if c.name == "other" {
			require.LessOrEqual(t, c.commands, 4, "%+v", c)
		} else if c.script != scripts.Renew { // which has a bound of its own
			require.LessOrEqual(t, c.commands, mostCommands, "%+v", c)
			require.LessOrEqual(t, c.words, mostWords, "%+v", c)
		}
		if c.words > longest[c.script].words {
			longest[c.script] = c
		}
	}
	return longest
}

// timeSections takes and gives back the lock "other" at least n times, until the crowd has come so far, and shows how
// long that took.
func timeSections(p *process, when string, n int, enough func() bool) {
	p.W.Helper()
	var took []time.Duration
	for len(took) < n || !enough() {
		begun := time.Now()
		p.W.Release(p.Take("other", rwlock.Write))
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	p.W.Logf("%s: %d sections, median %v, 99 %% within %v, the longest %v",
		when, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}

// logSlow shows the script calls of the server's slow log.
func logSlow(w *world) {
	w.Helper()
	took := map[scripts.Name][]time.Duration{}
	for _, entry := range w.Command("SLOWLOG", "GET", "-1").([]any) {
		fields := entry.([]any)
		var command []string
		for _, word := range fields[3].([]any) {
			command = append(command, word.(string))
		}
		if name := testkit.ScriptOf(command); name != "" {
			took[name] = append(took[name], time.Duration(fields[2].(int64))*time.Microsecond)
		}
	}
	for name, all := range took {
		slices.Sort(all)
		w.Logf("%s: %d calls of more than 100 us, median %v, the longest %v",
			name, len(all), all[len(all)/2], all[len(all)-1])
	}
}
