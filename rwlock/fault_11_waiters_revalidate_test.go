package rwlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F11: waiters re-validate; a reconnect wakes everyone.

// load is several processes that take one lock in turns, and what they saw.
type load struct {
	grants testkit.Notes[time.Time]
	tokens testkit.Notes[fencing.Token]
	all    sync.WaitGroup
	stop   context.CancelFunc
}

// startLoad runs n workers in n processes until stopped: each takes the lock, works for a while, gives it back.
func startLoad(w *world, n int, work time.Duration) *load {
	ctx, stop := context.WithCancel(w.Ctx)
	l := &load{stop: stop}
	for range n {
		p := w.Process()
		l.all.Go(func() {
			for ctx.Err() == nil {
				lease, err := p.Lock(ctx, "n")
				if err != nil {
					continue
				}
				l.grants.Add(time.Now())
				l.tokens.Add(lease.Token())
				time.Sleep(work)
				_ = lease.Release(ctx) // lost in the disaster, as like as not
			}
		})
	}
	w.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.all.Wait()
}

// longestGap returns the longest time without a grant from that moment on.
func (l *load) longestGap(from time.Time) (longest time.Duration) {
	for _, at := range l.grants.All() {
		if at.After(from) {
			longest = max(longest, at.Sub(from))
			from = at
		}
	}
	return max(longest, time.Since(from))
}

var disasters = map[string]func(w *world){
	"FLUSHALL":     func(w *world) { w.FlushAll() },
	"SCRIPT FLUSH": func(w *world) { w.FlushScripts() },
	"both":         func(w *world) { w.FlushScripts(); w.FlushAll() },
}

func TestF11WaitersGoOnAfterTheKeysVanished(t *testing.T) {
	eachInFakeTime(t, disasters, func(w *world, strike func(*world)) {
		const work = 70 * time.Millisecond
		l := startLoad(w, 4, work)
		for range 3 {
			w.Pass(1700 * time.Millisecond)
			at := time.Now()
			strike(w)
			w.Pass(3 * time.Second)
			require.LessOrEqual(w, l.longestGap(at), w.Refresh()+work)
		}
		l.end()
		require.IsIncreasing(w, l.tokens.All())
		require.Greater(w, len(l.grants.All()), 100)
	})
}

// splitProcess is a process whose subscription has a link of its own.
func splitProcess(w *world) (p *process, news *testredis.Link) {
	commands, news := w.NewLink(), w.NewLink()
	option := commands.Option()
	first := option.DialCtxFn
	var mu sync.Mutex
	dialled := false
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		mu.Lock()
		dial := first
		if dialled {
			dial = news.Option().DialCtxFn
		}
		dialled = true
		mu.Unlock()
		return dial(ctx, addr, d, t)
	}
	return w.ProcessOn(commands, option), news
}

func TestF11SubscriptionThatIsCutCostsOneRefresh(t *testing.T) {
	testkit.Each(t, map[string]func(news *testredis.Link){
		"cut":         func(news *testredis.Link) { news.Cut() },
		"refused":     func(news *testredis.Link) { news.Refuse(); news.Cut() },
		"silent":      func(news *testredis.Link) { news.Blackhole(testredis.Both) },
		"late":        func(news *testredis.Link) { news.DelayDir(testredis.ToClient, time.Minute) },
		"never stood": nil,
	}, func(t *testing.T, strike func(*testredis.Link)) {
		for wait := time.Duration(0); wait < 2*time.Second; wait += every {
			inFakeTime(t, func(w *world) {
				holder := w.Process()
				p, news := splitProcess(w)
				if strike == nil {
					news.Refuse()
				}
				held := holder.Take("n", rwlock.Write)
				waiter := p.Queue("n", rwlock.Write)
				w.Pass(time.Second)
				require.Equal(w, strike != nil, news.Calls("SUBSCRIBE") == 1)
				if strike != nil {
					strike(news)
				}
				w.Pass(wait)
				released := time.Now()
				lease := waiter.GrantedAfter(held)
				require.LessOrEqual(w, waiter.At.Sub(released), w.Refresh())
				w.Pass(2 * w.TTL)
				require.NoError(w, lease.Err(), "commands have a link of their own")
			})
		}
	})
}

// While the connection was away the message went to nobody; the waiter asks as soon as it stands again.
func TestF11ReconnectWakesEveryone(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder := w.Process()
		p, news := splitProcess(w)
		held, waiter := holder.Take("n", rwlock.Write), p.Queue("n", rwlock.Write)
		w.Pass(10*time.Second + 20*time.Millisecond) // a refresh was just now
		news.Refuse()
		news.Cut()
		w.Settle()
		w.Release(held)
		require.True(w, waiter.IsWaiting())
		news.Restore()
		back := time.Now()
		waiter.Granted()
		require.Less(w, waiter.At.Sub(back), w.Refresh()/10)
	})
}

// A subscription made for another lock during a waiter's request has missed the grant to it.
func TestF11ASubscriptionDuringARequest(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const late = 500 * time.Millisecond
		holder, p := w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write)
		p.WarmUp()
		struck := p.Link.DelayNextReply(testkit.Running("acquire"), late)
		waiter := p.Acquire(w.Ctx, "n", rwlock.Write)
		<-struck
		asked := time.Now()
		w.Release(held)                                 // to a process that does not listen so far
		other := w.Call(w.Ctx, p.RWMutex("other").Lock) // listens before it asks
		waiter.Granted()
		require.NoError(w, other.Result())
		require.Less(w, waiter.At.Sub(asked), late+w.Refresh()/10)
	})
}
