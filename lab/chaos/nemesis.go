package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// nemesis strikes servers, links and workers with faults that it draws from a seed. The seed decides the targets and
// the durations, but not the behaviour of the processes in between.
type nemesis struct {
	arena *arena
	rng   *rand.Rand
	kinds []string
	all   sync.WaitGroup // of the faults under way

	mu       sync.Mutex
	faults   []history.Fault
	busy     map[*node]bool    // servers that are struck or about to be
	changing bool              // the roles of servers are about to change
	oblivion map[int]time.Time // until when a master that lost its data may not vote
	replaced bool              // a master was
}

// strike is one fault: what the history says of it, its duration, and how it begins and ends. end may be nil.
type strike struct {
	history.Fault
	lasts      time.Duration
	begin, end func()
	links      []*link // that it strikes
}

// kinds are the faults by name. A nil strike means that the fault cannot strike now.
var kinds = map[string]func(n *nemesis) *strike{
	"restart":        func(n *nemesis) *strike { return n.restart(false, false) },
	"restart-old":    func(n *nemesis) *strike { return n.restart(true, false) },
	"restart-warm":   func(n *nemesis) *strike { return n.restart(true, true) },
	"save":           (*nemesis).save,
	"freeze-server":  (*nemesis).freezeServer,
	"freeze-quorum":  (*nemesis).freezeQuorum,
	"flush":          (*nemesis).flush,
	"flush-single":   (*nemesis).flushSingle,
	"delete-key":     func(n *nemesis) *strike { return n.deleteKey("q", "x") },
	"delete-holds":   func(n *nemesis) *strike { return n.deleteKey("h") },
	"script-flush":   func(n *nemesis) *strike { return n.command("SCRIPT", "FLUSH") },
	"kill-clients":   func(n *nemesis) *strike { return n.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
	"kill-listeners": func(n *nemesis) *strike { return n.command("CLIENT", "KILL", "TYPE", "pubsub") },
	"memory":         (*nemesis).memory,
	"clock":          (*nemesis).clock,
	"demote":         (*nemesis).demote,

	"rolling-restart": (*nemesis).rollingRestart,
	"failover":        (*nemesis).failover,
	"crash":           (*nemesis).crash,
	"reshard":         (*nemesis).reshard,
	"replace":         func(*nemesis) *strike { return nil }, // see calm

	"cut":                (*nemesis).cut,
	"refuse":             (*nemesis).refuse,
	"blackhole":          (*nemesis).blackhole,
	"half-open":          (*nemesis).halfOpen,
	"hold":               (*nemesis).hold,
	"delay":              (*nemesis).delay,
	"slow":               (*nemesis).slow,
	"late":               (*nemesis).late,
	"stray":              (*nemesis).stray,
	"lose-messages":      (*nemesis).loseMessages,
	"duplicate-messages": (*nemesis).duplicateMessages,
	"lose-reply":         (*nemesis).loseReply,
	"mute-reply":         (*nemesis).muteReply,
	"lose-command":       (*nemesis).loseCommand,
	"run-twice":          (*nemesis).runTwice,

	"freeze-worker": (*nemesis).freezeWorker,
	"pause-worker":  (*nemesis).pauseWorker,
	"kill-worker":   (*nemesis).killWorker,
}

// rare faults last long or suspend promises: they strike at every third of their turns.
var rare = map[string]bool{
	"rolling-restart": true, "failover": true, "crash": true, "reshard": true, "clock": true, "demote": true,
}

// asked are the faults that strike only where a run names them. Where its only server is emptied, a lock promises
// nothing but its tokens. Without the key that says when readers end, a dead one keeps writers out for a minute.
var asked = map[string]bool{"flush-single": true, "pause-worker": true, "delete-holds": true}

// Now and then nothing strikes for a while, because some promises hold only then.
const untilCalm, calmness = 20 * time.Second, 8 * time.Second

// rage strikes until the time is over, and returns when every fault has ended.
func (n *nemesis) rage(until time.Time, gap time.Duration) {
	n.busy, n.oblivion = map[*node]bool{}, map[int]time.Time{}
	calm := time.Now().Add(untilCalm)
	for time.Now().Before(until) && n.arena.t.Context().Err() == nil && !n.arena.differs() {
		if time.Now().After(calm) {
			n.calm()
			calm = time.Now().Add(untilCalm)
		}
		kind := n.kinds[n.rng.IntN(len(n.kinds))]
		if rare[kind] && n.rng.IntN(3) > 0 {
			continue
		}
		s := kinds[kind](n)
		if s == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		s.Kind = kind
		n.all.Go(func() { n.strike(s) })
		time.Sleep(n.upTo(gap))
	}
	n.all.Wait()
	n.arena.awaitReady()
	n.cureSets()
	for _, links := range n.arena.links {
		for _, link := range links {
			link.Restore()
			link.Delay(0)
			link.DropPushes(nil)
			link.DuplicatePushes(nil)
			link.Duplicate(nil, nil)
		}
	}
}

// cureSets deletes the markers, as the runbook says, where most masters have come back from saves of before a
// replacement and are not in the last set: nothing else brings their locks back.
func (n *nemesis) cureSets() {
	latest, members := "", 0
	for _, at := range n.arena.nodes {
		set, _ := at.Command("HGET", "fencelock:master", "set")
		switch id, _ := set.(string); {
		case id > latest:
			latest, members = id, 1
		case id == latest:
			members++
		}
	}
	if !n.replaced || members > len(n.arena.nodes)/2 {
		return
	}
	s := &strike{Fault: history.Fault{Target: "all markers", Forgets: true}, begin: n.arena.deleteMarkers}
	s.Kind = "cure"
	n.strike(s)
}

// calm waits until all faults have ended, and then for a while. A master is replaced at such a time.
func (n *nemesis) calm() {
	n.all.Wait()
	n.arena.awaitReady()
	for _, kind := range n.kinds {
		if s := n.replace(); kind == "replace" && s != nil {
			s.Kind = kind
			n.strike(s)
		}
	}
	time.Sleep(calmness)
}

func (n *nemesis) strike(s *strike) {
	s.From = now()
	s.begin()
	if s.end != nil {
		time.Sleep(s.lasts)
		s.end()
	}
	s.Until = now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, s.Fault)
}

func (n *nemesis) upTo(d time.Duration) time.Duration {
	return time.Duration(n.rng.Int64N(int64(d))) + time.Millisecond
}

// lasts draws the duration of a fault: mostly less than a TTL, up to three.
func (n *nemesis) lasts() time.Duration {
	if n.rng.IntN(4) == 0 {
		return n.upTo(3 * n.arena.ttl)
	}
	return n.upTo(n.arena.ttl)
}

func ofWorker(w *process) history.Fault {
	return history.Fault{Target: fmt.Sprint("worker ", w.slot), Workers: []int{w.slot}}
}

func (n *nemesis) freezeWorker() *strike {
	w := n.arena.workers[n.rng.IntN(len(n.arena.workers))]
	return &strike{
		Fault: ofWorker(w), lasts: n.lasts(),
		begin: func() { w.signal(syscall.SIGSTOP) }, end: func() { w.signal(syscall.SIGCONT) },
	}
}

// pauseWorker stops a worker mostly for longer than its leases last.
func (n *nemesis) pauseWorker() *strike {
	s := n.freezeWorker()
	s.lasts = n.upTo(3 * n.arena.ttl)
	return s
}

func (n *nemesis) killWorker() *strike {
	w := n.arena.workers[n.rng.IntN(len(n.arena.workers))]
	return &strike{Fault: ofWorker(w), begin: func() { n.arena.replace(w) }}
}
