package rwlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F28: a try is one attempt and ends with its context, whatever the server does; Lock waits until its context ends, and
// for no other reason less.

// troubles keep a server from answering p.
var troubles = []struct {
	name  string
	begin func(w *world, p *process)
	end   func(w *world, p *process)
}{
	{"the server hangs", func(w *world, _ *process) { w.mini.Freeze() }, func(w *world, _ *process) { w.mini.Thaw() }},
	{
		"replies do not arrive",
		func(_ *world, p *process) { p.link.Hold(testredis.ToClient) },
		func(_ *world, p *process) { p.link.Restore() },
	},
	{
		"packets are dropped",
		func(_ *world, p *process) { p.link.Blackhole(testredis.Both) },
		func(_ *world, p *process) { p.link.Restore() },
	},
	{
		"the connection is gone and dialling hangs",
		func(_ *world, p *process) { p.link.Hold(testredis.Both); p.link.Cut() },
		func(_ *world, p *process) { p.link.Restore() },
	},
	{
		"the connection is gone and the next one hangs",
		func(w *world, p *process) {
			w.pass(100 * time.Millisecond) // else the client is taken to be connected, and the caller's own dial is tried
			w.mini.Freeze()
			p.link.Cut()
		},
		func(w *world, _ *process) { w.mini.Thaw() },
	},
	{
		"the server is down",
		func(w *world, _ *process) { w.mini.Stop() },
		func(w *world, _ *process) { w.mini.Recover() },
	},
}

func TestF28TryEndsWithItsContext(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				for _, warm := range []bool{false, true} {
					p := w.process()
					if warm {
						w.release(p.lock("n", rwlock.Write)) // a connection that has just answered
					}
					trouble.begin(w, p)
					w.settle()
					for how, try := range map[string]func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error){
						"TryLock": p.TryLock, "TryRLock": p.TryRLock,
					} {
						for _, limit := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 10 * time.Second} {
							ctx, cancel := context.WithTimeout(w.ctx, limit)
							start := time.Now()
							_, err := try(ctx, "n")
							require.LessOrEqual(w.t, time.Since(start), limit, "%s, warm: %v", how, warm)
							require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
							require.NotErrorIs(w.t, err, rwlock.ErrNotAcquired)
							if ctx.Err() == nil {
								require.NotErrorIs(w.t, err, context.DeadlineExceeded, "that context has not ended")
							}
							cancel()
						}
						ctx, cancel := context.WithCancel(w.ctx)
						time.AfterFunc(3*time.Millisecond, cancel)
						start := time.Now()
						_, err := try(ctx, "n")
						require.LessOrEqual(w.t, time.Since(start), 3*time.Millisecond, "%s, cancelled, warm: %v", how, warm)
						require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
					}
					trouble.end(w, p)
					w.pass(w.ttl)
					require.NoError(w.t, p.acquireOnce("n"), "the trouble is over, and nothing of the tries is left")
				}
			})
		})
	}
}

// Without a context that ends a try ends as well: with the client's patience.
func TestF28TryEndsWithoutAContext(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				trouble.begin(w, p)
				start := time.Now()
				require.ErrorIs(w.t, p.acquireOnce("n"), rwlock.ErrNoQuorum)
				o := testredis.ClientOption("")
				require.LessOrEqual(w.t, time.Since(start), 2*o.Dialer.KeepAlive+o.ConnWriteTimeout+o.Dialer.Timeout)
				trouble.end(w, p)
			})
		})
	}
}

func TestF28TryIsOneAttempt(t *testing.T) {
	everywhere(t, func(w *world) {
		w.process().lock("n", rwlock.Write)
		p := w.process()
		require.ErrorIs(w.t, p.acquireOnce("n"), rwlock.ErrNotAcquired) // the script is known from now on
		p.link.ResetCalls()
		require.ErrorIs(w.t, p.acquireOnce("n"), rwlock.ErrNotAcquired)
		require.Equal(w.t, 1, p.link.Calls("EVALSHA")+p.link.Calls("EVAL"))
		require.Empty(w.t, w.inspect("n").Waiters)
	})
}

// Lock goes on through every trouble for as long as it may, and gets in when the trouble is over.
func TestF28LockOutlastsTrouble(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				trouble.begin(w, p)
				const long = 10 * time.Minute
				start := time.Now()
				ctx, cancel := context.WithTimeout(w.ctx, long)
				defer cancel()
				bounded := p.acquire(ctx, "n", rwlock.Write)
				unbounded := p.acquire(w.ctx, "n", rwlock.Write)
				w.pass(long - time.Millisecond)
				require.True(w.t, bounded.isWaiting())
				w.pass(time.Millisecond)
				err := bounded.failed()
				require.Equal(w.t, long, bounded.at.Sub(start))
				require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
				require.ErrorIs(w.t, err, context.DeadlineExceeded)
				require.True(w.t, unbounded.isWaiting())

				trouble.end(w, p)
				over := time.Now()
				w.release(unbounded.granted())
				require.LessOrEqual(w.t, unbounded.at.Sub(over), 5*time.Second, "one backoff, dial and refresh")
			})
		})
	}
}

// It waits as long behind a holder.
func TestF28LockOutlastsTheHolder(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.ttl = time.Minute
		held := w.process().lock("n", rwlock.Write)
		last := w.process().queue("n", rwlock.Write)
		w.pass(time.Hour)
		require.True(w.t, last.isWaiting())
		w.release(held)
		w.release(last.granted())
	})
}

// A dead server is left in peace: it is dialled about once a second, by all that waits in a process together.
func TestF28DeadServerIsNotHammered(t *testing.T) {
	inFakeTime(t, func(w *world) {
		link := w.newLink()
		option := link.Option()
		var dials atomic.Int32
		reach := option.DialCtxFn
		option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			dials.Add(1)
			return reach(ctx, addr, d, c)
		}
		client, err := rueidis.NewClient(option)
		require.NoError(w.t, err)
		defer client.Close()
		locker, err := rwlock.New(client)
		require.NoError(w.t, err)
		defer locker.Close()
		p := &process{Locker: locker, link: link, w: w}
		p.lock("held", rwlock.Write)
		p.die()
		var waiting []*pending
		ctx, cancel := context.WithCancel(w.ctx)
		for i := range 20 {
			waiting = append(waiting, p.acquire(ctx, string(rune('a'+i)), rwlock.Write))
		}
		w.pass(10 * time.Second)
		dials.Store(0)
		w.pass(time.Minute)
		require.LessOrEqual(w.t, int(dials.Load()), 4*60, "two connections, each tried at most every half second")
		require.Positive(w.t, dials.Load(), "but it is looked after")
		cancel()
		for _, a := range waiting {
			require.ErrorIs(w.t, a.failed(), rwlock.ErrNoQuorum)
		}
	})
}
