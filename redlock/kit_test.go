package redlock_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

type (
	world   = testkit.World
	process = testkit.Process
)

// inFakeTime runs a test over so many masters, to which messages take a millisecond.
func inFakeTime(t *testing.T, masters int, test func(w *world)) {
	t.Helper()
	testkit.InFakeTime(t, masters, func(w *world) {
		w.Net.Way = time.Millisecond
		test(w)
	})
}

// runInFakeTime is inFakeTime in a subtest.
func runInFakeTime(t *testing.T, name string, masters int, test func(w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inFakeTime(t, masters, test) })
}

// eachInFakeTime is inFakeTime for each case, in a subtest of its name.
func eachInFakeTime[C any](t *testing.T, masters int, cases map[string]C, test func(w *world, c C)) {
	t.Helper()
	testkit.Each(t, cases, func(t *testing.T, c C) { inFakeTime(t, masters, func(w *world) { test(w, c) }) })
}

// warm starts a process that has used the masters once: it is connected, and they know the scripts.
func warm(w *world, opts ...rwlock.Option) *process {
	w.Helper()
	return warmed(w.Process(opts...))
}

// warmed is the process once it has used the masters.
func warmed(p *process) *process {
	p.W.Helper()
	p.Section("warm-up")
	return p
}

// warmUp has the processes use the masters.
func warmUp(all ...*process) {
	for _, p := range all {
		p.W.Helper()
		p.Section("warm-up")
	}
}

// judged takes the lock before the eyes of a judge.
func judged(j *judge.Judge, p *process, name string) *rwlock.Lease {
	p.W.Helper()
	at := j.Begin(name)
	lease := p.Take(name, rwlock.Write)
	j.Acquired(at, lease)
	return lease
}

// ahead gives a process a wall clock that is so much ahead of the masters'.
func ahead(d time.Duration) rwlock.Option { return testkit.NewWallClock(d).Option() }

// drifting gives a process a clock that is so much ahead and runs at another rate.
func drifting(d time.Duration, rate float64) rwlock.Option {
	return testkit.NewDriftingClock(d, rate).Option()
}

// tuned is the network of processes whose clients are those of rwlock.Dial.
var tuned = testkit.Net{Tuned: true}

// dialled is a process over clients of redlock.Dial, without links that could fail.
func dialled(w *world, addrs []string, opts ...rwlock.Option) *process {
	w.Helper()
	clients := expect.NoError(redlock.Dial(addrs, rueidis.ClientOption{})).In(w)
	for _, c := range clients {
		w.Cleanup(c.Close)
	}
	return (&process{W: w, Clients: clients}).Start(opts...)
}

// awaitReplica returns when a replica has what the server has been told.
func awaitReplica(w *world, server *testredis.Server) {
	w.Helper()
	has := func() bool {
		n, err := server.Command("WAIT", "1", "1000")
		return err == nil && n.(int64) > 0
	}
	require.Eventually(w, has, 2*time.Minute, time.Millisecond)
}

// nobodyBeside tries to take a lock for as long as a lease of it stands, which must fail.
func nobodyBeside(w *world, lease *rwlock.Lease, others ...*process) {
	w.Helper()
	tries := 0
	for ; lease.Err() == nil; tries++ {
		for _, p := range others {
			ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
			next, err := p.TryLock(ctx, lease.Name())
			cancel()
			if err != nil {
				continue
			}
			require.Error(w, lease.Err(), "tokens %v and %v are held at once", lease.Token(), next.Token())
			require.Greater(w, next.Token(), lease.Token())
			require.NoError(w, next.Release(w.Ctx))
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.Logf("%d rounds of attempts while the lease stood", tries)
}

// follow makes a server the replica of another, or of nobody, without waiting for it to catch up.
func follow(w *world, server, of *testredis.Server) {
	w.Helper()
	if of == nil {
		w.On(server, "REPLICAOF", "NO", "ONE")
		return
	}
	host, port, err := net.SplitHostPort(of.Addr())
	require.NoError(w, err)
	w.On(server, "REPLICAOF", host, port)
}

func TestMain(m *testing.M) {
	scratch.Use("fencelock-redlock")
	testredis.Together()
	goleak.VerifyTestMain(m)
}
