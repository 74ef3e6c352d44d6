package rwlock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// A master that fails is spared dialling, not the protocol: a renewal is sent as long as trust is left, and an
// acquisition as soon as the link is back.

// busy lets four goroutines, or none, ask for other locks of the process all the time, until rest is called.
func keepBusy(p *process, traffic bool) (rest func()) {
	ctx, cancel := context.WithCancel(p.W.Ctx)
	var all sync.WaitGroup
	for i := range 4 {
		if !traffic {
			break
		}
		all.Go(func() {
			for ctx.Err() == nil {
				short, end := context.WithTimeout(ctx, 100*time.Millisecond)
				if lease, err := p.TryLock(short, fmt.Sprint("other ", i)); err == nil {
					_ = lease.Release(ctx)
				}
				end()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func TestRenewalIsSentWhileTrustIsLeft(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 20 * time.Second} {
		for _, traffic := range []bool{false, true} {
			if traffic && ttl > 2*time.Second {
				continue
			}
			for _, left := range []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 450 * time.Millisecond} {
				t.Run(fmt.Sprintf("TTL %v, traffic %v, back %v before the deadline", ttl, traffic, left), func(t *testing.T) {
					inFakeTime(t, func(w *world) {
						w.TTL = ttl
						p := w.Process()
						p.WarmUp()
						lease := p.Take("n", rwlock.Write)
						p.Link.Refuse()
						p.Link.Cut()
						rest := keepBusy(p, traffic)
						defer rest()
						w.Pass(time.Until(lease.Deadline()) - left)
						require.NoError(w, lease.Err())
						p.Link.Restore()
						w.Pass(left)
						rest()
						w.Pass(2 * w.TTL)
						require.NoError(w, lease.Err(), "the link was back in time")
					})
				})
			}
		}
	}
}

// A link that comes and goes: whoever asks after it is back is served, and while it is away nobody dials without end.
func TestTryLockSucceedsAsSoonAsTheLinkIsBack(t *testing.T) {
	const outage, soonAfter = 3 * time.Second, 200 * time.Millisecond
	for _, extra := range []time.Duration{0, 130, 370, 610, 890} {
		extra *= time.Millisecond
		t.Run(fmt.Sprint("outage of ", outage+extra), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p, dials := countedProcess(w)
				p.WarmUp()
				try := func() error {
					ctx, cancel := context.WithTimeout(w.Ctx, soonAfter)
					defer cancel()
					lease, err := p.TryLock(ctx, "n")
					if err == nil {
						w.Release(lease)
					}
					return err
				}
				require.NoError(w, try())
				p.Link.Refuse()
				p.Link.Cut()
				dials.Store(0)
				for down := time.Now().Add(outage + extra); time.Now().Before(down); w.Pass(time.Millisecond) {
					require.ErrorIs(w, try(), rwlock.ErrNoQuorum)
				}
				require.Less(w, int(dials.Load()), 500, "dials during the outage")
				p.Link.Restore()
				back := time.Now()
				for try() != nil {
					require.Less(w, time.Since(back), soonAfter, "TryLock is refused though the link is back")
					w.Pass(time.Millisecond)
				}
			})
		})
	}
}

// countedProcess is a process whose dials are counted.
func countedProcess(w *world) (*process, *atomic.Int32) {
	link, dials := w.NewLink(), new(atomic.Int32)
	option := link.Option()
	reach := option.DialCtxFn
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		dials.Add(1)
		return reach(ctx, addr, d, c)
	}
	return w.ProcessOn(link, option), dials
}
