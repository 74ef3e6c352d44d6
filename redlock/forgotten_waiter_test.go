package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// Whoever waits is not let in by a master that has forgotten who holds the lock, whichever script would let it in, and
// whatever kind of client asks. One reads beside a writer who waits, on a quorum of which one master goes back to that
// moment: the reader has been upgraded since, and writes.
func TestWaiterIsNotLetInByAForgetfulMaster(t *testing.T) {
	t.Parallel() // servers start and are waited for
	for back, goBack := range map[string]func(w *forgetfulWorld){
		"restart, its scripts are loaded again": (*forgetfulWorld).restartWarm,
		"restart":                               (*forgetfulWorld).restart,
		"failback to a replica that lags":       (*forgetfulWorld).failBack,
	} {
		for client, start := range map[string]func(s *realSet) *realPeer{
			"dialled by Dial": func(s *realSet) *realPeer { return s.dialled(rwlock.WithTTL(quarantineTTL)) },
			"of their own":    func(s *realSet) *realPeer { return s.peer(nil, rwlock.WithTTL(quarantineTTL)) },
		} {
			t.Run(back+", clients "+client, func(t *testing.T) {
				t.Parallel()
				w := &forgetfulWorld{t: t, set: newRealSet(t, 3)}
				w.holder, w.waiter = start(w.set), start(w.set)
				goBack(w)
			})
		}
	}
}

// forgetfulWorld is two processes and three masters, of which the second forgets.
type forgetfulWorld struct {
	t              *testing.T
	set            *realSet
	holder, waiter *realPeer
}

func (w *forgetfulWorld) restartWarm() { w.afterSave(true) }

func (w *forgetfulWorld) restart() { w.afterSave(false) }

func (w *forgetfulWorld) afterSave(warm bool) {
	w.prepare()
	w.play(func(master *testredis.Server) {
		command(w.t, master, "SAVE")
	}, func(master *testredis.Server) {
		master.Kill()
		w.gone(master)
		master.Restart()
		if warm {
			loadScripts(w.t, master)
		}
	})
}

// prepare lets both processes use the masters, so that connections stand and scripts are known.
func (w *forgetfulWorld) prepare() {
	for _, p := range []*realPeer{w.holder, w.waiter} {
		p.use(w.t, "a", "b")
	}
}

// gone keeps the processes from the second master until it is back.
func (w *forgetfulWorld) gone(master *testredis.Server) {
	for _, p := range []*realPeer{w.holder, w.waiter} {
		p.proxies[1].Refuse()
		p.proxies[1].Retarget(master.Addr())
		p.proxies[1].Cut()
	}
}

// play has the holder read and another wait to write, then the holder write; between the two the state of the second
// master is kept, and after them it is the one that was kept.
func (w *forgetfulWorld) play(keep, goBack func(master *testredis.Server)) {
	t := w.t
	w.holder.misses(2)
	lease, err := w.holder.RLock(soon(t, time.Minute), "x", rwlock.WithoutRenewal())
	require.NoError(t, err)
	let := make(chan *rwlock.Lease, 1)
	go func() {
		next, err := w.waiter.Lock(soon(t, time.Minute), "x")
		if err != nil {
			t.Error(err)
		}
		let <- next
	}()
	require.Eventually(t, func() bool {
		return command(t, w.set.servers[1], "ZCARD", "fencelock:{x}:q") == int64(1)
	}, time.Minute, time.Millisecond)
	keep(w.set.servers[1])
	// The upgrade comes late, so that the read hold, which the second master has again, ends while the write stands.
	readUntil := lease.Deadline()
	time.Sleep(time.Until(readUntil) - quarantineTTL/3)
	if err := lease.Upgrade(soon(t, quarantineTTL/4)); err != nil {
		t.Skip("the machine is too slow for the read lease: ", err)
	}
	goBack(w.set.servers[1])
	time.Sleep(time.Until(readUntil) + quarantineTTL/20) // nothing is in the way of the waiter there any more
	for _, p := range []*realPeer{w.holder, w.waiter} {
		p.proxies[1].Restore()
	}
	next := <-let
	require.NotNil(t, next)
	require.Error(t, lease.Err(), "two write: tokens %v and %v", lease.Token(), next.Token())
	require.Greater(t, next.Token(), lease.Token())
	require.NoError(t, next.Release(t.Context()))
}

// failBack has the second master be a pair, which has failed over before; then it goes back to the one that lags.
func (w *forgetfulWorld) failBack() {
	t, s := w.t, w.set
	first, second := s.servers[1], testredis.Start(t)
	w.prepare()
	second.ReplicaOf(first)
	awaitReplica(t, first)
	w.gone(second)
	follow(t, second, nil)
	first.ReplicaOf(second)
	for _, p := range []*realPeer{w.holder, w.waiter} {
		p.proxies[1].Restore()
	}
	for begun := time.Now(); time.Since(begun) < quarantineTTL+time.Second; time.Sleep(50 * time.Millisecond) {
		w.prepare()
	}
	s.servers[1] = second
	w.play(func(*testredis.Server) {
		awaitReplica(t, second)
		nowhere := testredis.Start(t)
		nowhere.Kill()
		follow(t, first, nowhere) // it lags from now on
	}, func(*testredis.Server) {
		w.gone(first)
		follow(t, first, nil)
	})
}

// loadScripts loads every script as clients of the set send it, and as they sent it to the process before.
func loadScripts(t *testing.T, server *testredis.Server) {
	set := command(t, server, "HGET", "fencelock:master", "set").(string)
	run := command(t, server, "HGET", "fencelock:master", "run").(string)
	for name := range scripts.All() {
		for _, salt := range []string{"", "\n-- " + set + "\n", "\n-- " + set + " " + run + "\n"} {
			command(t, server, "SCRIPT", "LOAD", scripts.Source(name)+salt)
		}
	}
}
