package rwlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// perRefresh is how many waiters one refresh names at the most.
const perRefresh = 200

// A crowd is more waiters of one process and lock than one refresh names: those behind the nearest have not asked.
const crowd = 3 * perRefresh

// However many wait, one refresh is sent in an interval, and names no more waiters than a call may.
func TestCrowdCostsOneBoundedRefresh(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		p := w.Process()
		var all []*pending
		for range crowd {
			all = append(all, p.LineUp("n", rwlock.Write, func(*rwlock.Lease) {}))
		}
		w.Pass(2 * w.Claim())
		calls := 0
		p.Link.OnCommand(func(cmd []string) {
			if testkit.Running(scripts.Refresh)(cmd) {
				calls++
				require.LessOrEqual(w, len(cmd), perRefresh+16)
			}
		})
		const intervals = 10
		w.Pass(intervals * w.Refresh())
		require.GreaterOrEqual(w, calls, intervals-1)
		require.LessOrEqual(w, calls, intervals+1)
		require.Len(w, w.Inspect("n").Waiters, perRefresh, "the nearest are alive")
		require.Equal(w, crowd, p.Stats().Waiting)
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		w.OnlyTokensLeft()
	})
}

// A crowd that dies is out of the way within the lease of a waiter, also where its connection seems to stand.
func TestDeadCrowdDropsOutWithinItsLease(t *testing.T) {
	type death struct {
		die   func(p *process)
		later bool // the holder leaves when their leases are over
	}
	eachInFakeTime(t, map[string]death{
		"known to be gone":                {(*process).Die, false},
		"known to be gone, some time ago": {(*process).Die, true},
		"on an open connection":           {func(p *process) { p.Link.Blackhole(testredis.Both) }, false},
		"on an open one, some time ago":   {func(p *process) { p.Link.Blackhole(testredis.Both) }, true},
	}, func(w *world, test death) {
		held := w.Process().Take("n", rwlock.Write)
		p := w.Process()
		for range crowd {
			p.Acquire(w.Ctx, "n", rwlock.Write)
		}
		w.UntilWaiting("n", perRefresh)
		w.Pass(2 * w.Claim())
		last := w.Process().Queue("n", rwlock.Write)
		test.die(p)
		within := w.Claim() + 2*time.Millisecond
		if test.later {
			w.Pass(w.Claim() + time.Millisecond)
			require.Len(w, w.Inspect("n").Waiters, 1)
			within = 100 * time.Millisecond
		}
		released := time.Now()
		w.Release(last.GrantedAfter(held))
		require.LessOrEqual(w, last.At.Sub(released), within)
	})
}

// When all of a crowd give up at once, their releases go together, many in a call.
func TestCrowdGivesUpInCallsOfMany(t *testing.T) {
	const waiters = 1_000
	eachInFakeTime(t, map[string]func(p *process, stop context.CancelFunc){
		"Close":                func(p *process, _ context.CancelFunc) { _ = p.Close() },
		"the end of a context": func(_ *process, stop context.CancelFunc) { stop() },
	}, func(w *world, end func(*process, context.CancelFunc)) {
		held := w.Process().Take("n", rwlock.Write)
		p := w.Process()
		p.WarmUp() // the scripts are known from now on
		ctx, stop := context.WithCancel(w.Ctx)
		defer stop()
		var all []*pending
		for range waiters {
			all = append(all, p.Acquire(ctx, "n", rwlock.Write))
		}
		w.UntilWaiting("n", perRefresh)
		calls, named := 0, 0
		p.Link.OnCommand(func(cmd []string) {
			if testkit.Running(scripts.Release)(cmd) {
				const before = 3 + 1 + 1 // EVALSHA, digest, number of keys; the key; vote
				calls++
				named++
				if others := len(cmd) - before - 3; others > 0 { // the hold, and of its tombstone ms and whether several
					named += others
				}
			}
		})
		p.Link.Delay(time.Millisecond) // they gather while the first calls are under way
		end(p, stop)
		for _, a := range all {
			require.Error(w, a.Failed())
		}
		w.Pass(time.Second)
		require.GreaterOrEqual(w, named, perRefresh) // some of the others have asked when their turn came
		require.LessOrEqual(w, calls, named/2)
		require.Empty(w, w.Inspect("n").Waiters)
		w.Release(held)
		w.Release(w.Process().Take("n", rwlock.Write)) // none of them holds it
		w.Pass(w.TTL)                                  // for the tombstones of requests that were under way
		w.OnlyTokensLeft()
	})
}

// Releases that a server refuses for a while go on at a pace that slows down to a cap, and end soon after.
func TestRefusedReleasesBackOff(t *testing.T) {
	for _, refusal := range []string{
		"NOREPLICAS Not enough good replicas to write.",
		"LOADING Redis is loading the dataset in memory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"BUSY Redis is busy running a script.",
	} {
		subtestInFakeTime(t, refusal[:7], func(w *world) {
			const leases = 50
			w.TTL = time.Hour
			p := w.Process()
			all := takeEach(p, numbered("n", leases))
			w.Mini.Miniredis().SetError(refusal)
			var releases sync.WaitGroup
			for _, lease := range all {
				releases.Go(func() { _ = lease.Release(w.Ctx) })
			}
			releases.Wait()
			w.Pass(5 * time.Second)
			p.Link.ResetCalls()
			const window = 5 * time.Second
			w.Pass(window)
			sent := p.Link.Calls("EVALSHA") + p.Link.Calls("EVAL")
			require.LessOrEqual(w, sent, 2*leases*int(window/time.Second), "requests for %d releases within %v", leases, window)
			require.Positive(w, sent, "but they are pursued")

			w.Mini.Miniredis().SetError("")
			w.Pass(3 * time.Second)
			for i := range leases {
				require.Empty(w, w.Inspect(fmt.Sprint("n", i)).Holders, "n%d is still held", i)
			}
		})
	}
}

// A waiter keeps its place while its process is heard of in time. A real server and its clients may be on a machine
// that stands still for longer. Then the waiter asks again, behind the others, and the crowd lines up anew. In fake
// time each asks once.
func TestFIFOOfManyProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		const lockers, attempts = 10, 10
		var processes []*process
		for range lockers {
			processes = append(processes, w.Process())
		}
		for i := range attempts {
			if crowdInOrder(w, processes, fmt.Sprint("n", i)) {
				w.OnlyTokensLeft()
				return
			}
			require.Nil(w, w.Mini, "a waiter has asked again in fake time")
			w.UntilOnlyTokens()
		}
		require.Fail(w, "in each attempt a waiter has asked again")
	})
}

// crowdInOrder has a crowd line up for a lock, and fails the test unless it enters in that order, each from hand to
// hand. It reports false, and has tested nothing, if a waiter has asked more than once.
func crowdInOrder(w *world, processes []*process, name string) bool {
	w.Helper()
	const waiters = 200
	held := w.Process().Take(name, rwlock.Write, rwlock.WithTTL(time.Hour))
	var asked atomic.Int64
	before := uint64(0)
	for _, p := range processes {
		before += p.Stats().HandedOff
		p.Link.OnCommand(func(cmd []string) {
			if testkit.Running(scripts.Acquire)(cmd) {
				asked.Add(1)
			}
		})
	}
	var r testkit.Order
	var all []*pending
	for i := range waiters {
		next := processes[i*7%len(processes)]
		all = append(all, next.LineUp(name, rwlock.Write, func(l *rwlock.Lease) { r.Enter(i, l) }))
	}
	w.Release(held)
	handedOff := -before
	for _, a := range all {
		a.Granted()
	}
	for _, p := range processes {
		handedOff += p.Stats().HandedOff
	}
	if asked.Load() != waiters {
		w.Logf("%d waiters have asked %d times", waiters, asked.Load())
		return false
	}
	r.RequireFIFO(w, waiters)
	require.EqualValues(w, waiters, handedOff, "each from hand to hand")
	return true
}

// failingOver is a client that says of itself that it is of some mode, and sends to one of several servers, as the
// client of a Sentinel group does: to the next one from the moment of the failover.
type failingOver struct {
	rueidis.Client // the first
	mode           rueidis.ClientMode
	clients        []rueidis.Client
	addrs          []string
	now            atomic.Int64
}

// newFailingOver returns a client over links to these servers.
func newFailingOver(t testing.TB, mode rueidis.ClientMode, links ...*testredis.Link) *failingOver {
	c := &failingOver{mode: mode}
	for _, link := range links {
		c.clients = append(c.clients, link.Client(t))
		c.addrs = append(c.addrs, link.Option().InitAddress[0])
	}
	c.Client = c.clients[0]
	return c
}

func (c *failingOver) client() rueidis.Client { return c.clients[c.now.Load()] }

func (c *failingOver) Mode() rueidis.ClientMode { return c.mode }

func (c *failingOver) Nodes() map[string]rueidis.Client {
	return map[string]rueidis.Client{c.addrs[c.now.Load()]: c.client()}
}

func (c *failingOver) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.client().Do(ctx, cmd)
}

func (c *failingOver) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	return c.client().DoMulti(ctx, multi...)
}

func (c *failingOver) Dedicate() (rueidis.DedicatedClient, func()) { return c.client().Dedicate() }

// The readers of a crowd enter together, also those behind the nearest.
func TestCrowdOfReadersEntersTogether(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		p := w.Process()
		var all []*pending
		for range crowd {
			all = append(all, p.Acquire(w.Ctx, "n", rwlock.Read))
		}
		w.UntilWaiting("n", perRefresh)
		w.Pass(2 * w.Claim())
		released := time.Now()
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		require.Less(w, time.Since(released), w.Refresh(), "all are in together")
		for _, a := range all {
			w.Release(a.Lease)
		}
		w.OnlyTokensLeft()
	})
}
