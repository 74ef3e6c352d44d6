package rwlock_test

import (
	"flag"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var refereed = flag.Int64("rwlock.grants", 30_000, "how many grants of an RWMutex are watched")

const (
	refereedProcesses  = 4
	refereedGoroutines = 16
)

// Over many grants on a real server, handed on within processes and between them, one goroutine is in at a time, tokens
// go up from each to the next, and each process gets its share. The same with every hundredth message lost.
func TestRefereeOverManyGrants(t *testing.T) {
	for name, lossy := range map[string]bool{"all messages": false, "1 % of messages lost": true} {
		t.Run(name, func(t *testing.T) {
			server := testredis.Start(t)
			g := &grants{t: t, most: *refereed}
			if lossy {
				g.most /= 10 // a hand-off whose message is lost takes a refresh interval
			}
			began := time.Now()
			var all sync.WaitGroup
			for i := range refereedProcesses {
				link := testredis.NewProxy(t, server.Addr()).Link
				if lossy {
					var n atomic.Int64
					link.DropPushes(func([]string) bool { return n.Add(1)%100 == 0 })
				}
				locker, err := rwlock.New(link.Client(t), rwlock.WithTTL(3*time.Second))
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, locker.Close()) })
				for range refereedGoroutines {
					all.Go(func() { g.play(i, locker.RWMutex("n")) })
				}
			}
			all.Wait()
			took := time.Since(began)
			t.Logf("%d grants in %v, longest wait %v, by process %v",
				g.n.Load(), took, time.Duration(g.longest.Load()), g.shares())
			require.GreaterOrEqual(t, g.n.Load(), g.most)
			if g.most >= 30_000 { // else the first to come has the most
				for _, share := range g.shares() {
					require.InDelta(t, 1, share*refereedProcesses, 0.5, "of its share")
				}
			}
		})
	}
}

// grants are who has held the lock.
type grants struct {
	t       *testing.T
	most    int64
	n       atomic.Int64
	inside  atomic.Int64
	last    atomic.Uint64
	longest atomic.Int64
	by      [refereedProcesses]atomic.Int64
}

func (g *grants) play(process int, mu *rwlock.RWMutex) {
	for g.n.Load() < g.most {
		asked := time.Now()
		if err := mu.Lock(g.t.Context()); err != nil {
			g.t.Error(err)
			return
		}
		g.noteWait(time.Since(asked))
		token := mu.Token()
		if g.inside.Add(1) != 1 {
			g.t.Error("two are in")
		}
		if last := fencing.Token(g.last.Swap(uint64(token))); token <= last {
			g.t.Errorf("token %d after %d", token, last)
		}
		g.n.Add(1)
		g.by[process].Add(1)
		g.inside.Add(-1)
		if err := mu.Unlock(g.t.Context()); err != nil && !strings.Contains(err.Error(), "lost") {
			g.t.Error(err)
			return
		}
	}
}

func (g *grants) noteWait(d time.Duration) {
	for {
		longest := g.longest.Load()
		if int64(d) <= longest || g.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// shares returns the part of all grants that each process got.
func (g *grants) shares() (all [refereedProcesses]float64) {
	for i := range g.by {
		all[i] = math.Round(1000*float64(g.by[i].Load())/float64(g.n.Load())) / 1000
	}
	return all
}
