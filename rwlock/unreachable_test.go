package rwlock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Trace tells of a waiter whose Redis cannot be reached: at once, then at intervals that grow. Stats counts such
// waiters.
func TestUnreachableRedisIsTracedAndCounted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var mu sync.Mutex
		var told []time.Time
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(e rwlock.TraceEvent, err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, time.Now())
			if err == nil || e.Hold == "" {
				w.Errorf("told of %+v without a cause", e)
			}
		}}))
		p.WarmUp()
		require.Zero(w, p.Stats().Unreachable)
		p.Die()
		begun := time.Now()
		ctx, cancel := context.WithCancel(w.Ctx)
		waiters := []*pending{p.Acquire(ctx, "a", rwlock.Write), p.Acquire(ctx, "b", rwlock.Read)}
		w.Pass(5 * time.Second)
		require.Equal(w, len(waiters), p.Stats().Unreachable)
		w.Pass(time.Hour)
		mu.Lock()
		require.GreaterOrEqual(w, len(told), 2*len(waiters))
		require.Less(w, told[0].Sub(begun), time.Second)
		require.Less(w, len(told), 100*len(waiters))
		mu.Unlock()

		p.Link.Restore()
		for _, a := range waiters {
			w.Release(a.Granted())
		}
		require.Zero(w, p.Stats().Unreachable)
		cancel()
	})
}

// A server that stays silent is told to Trace with the type that it has in every error of this package.
func TestSilentRedisIsTracedByItsType(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var mu sync.Mutex
		var causes []error
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ rwlock.TraceEvent, err error) {
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, err)
		}}))
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		waiting := p.Acquire(ctx, "n", rwlock.Write)
		w.Pass(time.Minute)
		mu.Lock()
		require.NotEmpty(w, causes)
		require.ErrorAs(w, causes[0], new(*rwlock.NoReplyError)) // then its connection fails
		mu.Unlock()
		p.Link.Restore()
		w.Release(waiting.Granted())
	})
}

// Whoever comes while a silent server is not tried again finds the same type.
func TestNotTriedAgainKeepsTheTypeOfItsCause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		for range 2 {
			_, err := p.TryLock(w.Ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.ErrorAs(w, err, new(*rwlock.NoReplyError))
		}
		p.Link.Restore()
	})
}

// A server that goes away is one line at growing intervals, however many leases it has. The loss of each is another.
func TestOutageOfManyLeasesIsNoFloodOfLines(t *testing.T) {
	const leases, limit = 50, 6
	inFakeTime(t, func(w *world) {
		var j testkit.Log
		p := w.Process(j.Option())
		count := func(part string) (n int) {
			time.Sleep(time.Nanosecond) // the log is written by a goroutine
			text := j.String()
			return strings.Count(text, part)
		}
		var all []*rwlock.Lease
		for i := range leases {
			all = append(all, p.Take(fmt.Sprint("n", i), rwlock.Write))
		}
		w.Mini.Stop()
		for _, lease := range all {
			w.UntilOver(lease)
		}
		told := count("does not renew leases")
		require.Positive(w, told)
		require.LessOrEqual(w, told, limit)
		require.Greater(w, int(p.Stats().RenewFailed), leases*limit, "each failure is counted")
		require.Positive(w, count(fmt.Sprintf("leases=%d ", leases)))
		require.Equal(w, leases, count("lease lost"))

		w.Mini.Recover()
		lease := p.Take("again", rwlock.Write)
		require.NoError(w, lease.Renew(w.Ctx))
		require.Equal(w, told, count("does not renew leases"))
		w.Mini.Stop()
		require.Error(w, lease.Renew(w.Ctx))
		require.Equal(w, told+1, count("does not renew leases"), "the next outage is told at once")
		w.UntilOver(lease)
		w.Mini.Recover()
	})
}

// Renew is told within the node timeout that a server does not answer, also where no renewal was planned.
func TestRenewOnDemandHasALimit(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Hour
		p := w.Process()
		lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Pass(time.Minute)
		p.Link.Hold(testredis.ToClient)
		began := time.Now()
		require.ErrorContains(w, lease.Renew(w.Ctx), "no reply")
		require.Equal(w, time.Second, time.Since(began))
		require.NoError(w, lease.Err())
		p.Link.Restore()
		require.NoError(w, lease.Renew(w.Ctx))
	})
}

// The port is open and nobody answers. Every call ends with its context, though the client dials without end.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel() // it waits for a client that dials in vain
	const limit = 100 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	defer func() { _ = listener.Close() }() // which ends the dialling
	addr := listener.Addr().String()
	var dials atomic.Int32
	client, err := dial(t, addr, rueidis.ClientOption{
		Dialer: net.Dialer{Timeout: time.Hour},
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dials.Add(1) == 1 { // that of Dial itself, which would wait for it
				return nil, context.DeadlineExceeded
			}
			return d.DialContext(ctx, "tcp", addr)
		},
	})
	var silent *rwlock.NoReplyError
	require.ErrorAs(t, err, &silent, "the dial has reached its limit")
	locker := testkit.New(t, client, rwlock.WithReleaseTimeout(limit))
	calls := map[string]func(context.Context) error{"Inspect": func(ctx context.Context) error {
		_, err := locker.Inspect(ctx, "orders")
		return err
	}}
	for how, take := range acquisitions(locker) {
		calls[how] = func(ctx context.Context) error {
			_, err := take(ctx, "orders")
			require.ErrorIs(t, err, context.DeadlineExceeded, how)
			require.True(t, rwlock.Indeterminate(err), how)
			return err
		}
	}
	for how, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		over := time.AfterFunc(testkit.Patience, func() { panic(how + " goes on after its context has ended") })
		couldNotAsk(t, call(ctx), addr, "no reply in ")
		over.Stop()
		cancel()
	}
	require.Greater(t, dials.Load(), int32(1))
}
