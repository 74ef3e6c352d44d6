package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/scripts"
)

func ofServer(n *node) history.Fault {
	return history.Fault{Target: fmt.Sprintf("%s of master %d", n.Addr(), n.master), Masters: []int{n.master}}
}

// server draws a server that nothing strikes, and marks it until free is called.
func (n *nemesis) server() *node {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.arena.nodes[n.rng.IntN(len(n.arena.nodes))]
	if n.changing || n.busy[at] {
		return nil
	}
	n.busy[at] = true
	return at
}

func (n *nemesis) free(all ...*node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range all {
		delete(n.busy, at)
	}
}

// forgetful is server for one that may lose its data now: over a quorum of a minority of masters at a time, else if
// nothing strikes another server.
func (n *nemesis) forgetful() *node {
	at := n.server()
	if at == nil {
		return nil
	}
	if !n.mayForget(at) {
		n.free(at)
		return nil
	}
	return at
}

// mayForget reports whether so few other servers are struck, or abstain, that this one may lose its data.
func (n *nemesis) mayForget(at *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	others := map[int]bool{}
	for other := range n.busy {
		if other != at {
			others[other.master] = true
		}
	}
	if len(n.arena.masters) == 1 {
		return len(others) == 0
	}
	for other, until := range n.oblivion {
		if time.Now().Before(until) {
			others[other] = true
		}
	}
	delete(others, at.master)
	return len(others) < len(n.arena.masters)/2
}

// remembered frees a server that is back. Its master may not vote until the holds that it lost have expired.
func (n *nemesis) remembered(at *node) {
	n.free(at)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.oblivion[at.master] = time.Now().Add(max(n.arena.longest, 2*time.Second)*11/10 + 300*time.Millisecond)
}

// restart kills a server. One of several masters comes back empty, or with the data of its last save; all others keep
// their data.
func (n *nemesis) restart(old, warm bool) *strike {
	at := n.forgetful()
	if at == nil {
		return nil
	}
	s := &strike{Fault: ofServer(at), lasts: n.upTo(n.arena.ttl / 2)}
	s.Forgets = len(n.arena.masters) > 1
	if n.rng.IntN(2) == 0 {
		s.lasts = 5 * time.Millisecond
	}
	s.begin, s.end = n.restartOf(at, old, warm)
	return s
}

// restartOf returns the two halves of a restart.
func (n *nemesis) restartOf(at *node, old, warm bool) (stop, start func()) {
	salt := ""
	return func() {
			if warm {
				set, _ := at.Command("HGET", "fencelock:master", "set")
				salt, _ = set.(string)
			}
			if !old && n.arena.empty {
				forgetSave(at)
			}
			at.Kill()
		}, func() {
			startAgain(at)
			if warm {
				for _, source := range scripts.All() {
					_, _ = at.Command("SCRIPT", "LOAD", source+"\n-- "+salt+"\n")
				}
			}
			if master := n.arena.masterOf(at); master != nil {
				at.process.ReplicaOf(master)
			}
			n.remembered(at)
		}
}

// startAgain starts a server that was killed, and returns when it has read its data.
func startAgain(s host) {
	s.Restart()
	for {
		_, err := s.Command("PING")
		if err == nil || !strings.HasPrefix(err.Error(), "LOADING") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// forgetSave removes a server's save. The data of an embedded server are its save.
func forgetSave(at *node) {
	if s, ok := at.host.(*embeddedServer); ok {
		s.forgets.Store(true)
		return
	}
	if reply, err := at.Command("CONFIG", "GET", "dir"); err == nil {
		if pair, ok := reply.([]any); ok && len(pair) == 2 {
			_ = os.Remove(filepath.Join(pair[1].(string), "dump.rdb"))
		}
	}
}

// save has a master keep its data of this moment, for a restart from an old state.
func (n *nemesis) save() *strike {
	if !n.arena.empty || n.arena.cfg.deployment == embedded {
		return nil
	}
	return n.command("SAVE")
}

func (n *nemesis) command(args ...string) *strike {
	at := n.server()
	if at == nil {
		return nil
	}
	return &strike{Fault: ofServer(at), begin: func() {
		_, _ = at.Command(args...)
		n.free(at)
	}}
}

func (n *nemesis) freezeServer() *strike {
	at := n.server()
	if at == nil {
		return nil
	}
	return &strike{Fault: ofServer(at), lasts: n.lasts(), begin: at.Freeze, end: func() {
		at.Thaw()
		n.free(at)
	}}
}

// freezeQuorum stops more than half of the masters, or the only one.
func (n *nemesis) freezeQuorum() *strike {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.arena.promotable() > 0 || n.changing || len(n.busy) > 0 {
		return nil // behind sentinels this would be as many failovers
	}
	targets := slices.DeleteFunc(slices.Clone(n.arena.nodes), func(at *node) bool { return at.replica })
	n.rng.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	targets = targets[:len(targets)/2+1]
	for _, at := range targets {
		n.busy[at] = true
	}
	each := func(f func(*node)) func() {
		return func() {
			for _, at := range targets {
				f(at)
			}
		}
	}
	return &strike{
		Fault: history.Fault{Target: "a quorum"}, lasts: n.lasts(), begin: each(func(at *node) { at.Freeze() }),
		end: each(func(at *node) { at.Thaw(); n.free(at) }),
	}
}

// flush empties one of several masters.
func (n *nemesis) flush() *strike {
	if len(n.arena.masters) == 1 {
		return nil
	}
	at := n.forgetful()
	if at == nil {
		return nil
	}
	fault := ofServer(at)
	fault.Forgets = true
	return &strike{Fault: fault, begin: func() {
		_, _ = at.Command("FLUSHALL")
		n.remembered(at)
	}}
}

// flushSingle empties the only master.
func (n *nemesis) flushSingle() *strike {
	if len(n.arena.masters) > 1 {
		return nil
	}
	s := n.command("FLUSHALL")
	if s != nil {
		s.Forgets, s.Excuses = true, true
	}
	return s
}

// deleteKey deletes one of the keys that index what a lock has.
func (n *nemesis) deleteKey(suffixes ...string) *strike {
	name, at := n.rng.IntN(n.arena.names), []string{"n", "mn"}[n.rng.IntN(2)]
	return n.command("DEL", fmt.Sprintf("fencelock:{%s%d}:%s", at, name, suffixes[n.rng.IntN(len(suffixes))]))
}

// memory makes a server refuse to store anything new.
func (n *nemesis) memory() *strike {
	at := n.server()
	if at == nil {
		return nil
	}
	if at.process == nil {
		n.free(at)
		return nil
	}
	set := func(limit string) { _, _ = at.Command("CONFIG", "SET", "maxmemory", limit) }
	return &strike{Fault: ofServer(at), lasts: n.lasts(), begin: func() { set("1") }, end: func() {
		set("0")
		n.free(at)
	}}
}

// clock sets the clock of a server forward or back for a while. When it goes forward, leases end before their time, so
// exclusion is promised neither then nor while leases of that time last; nor is the order of tokens, since an RWMutex
// whose lease has ended on the server still has tokens of it.
func (n *nemesis) clock() *strike {
	at := n.forgetful()
	if at == nil || at.clock == nil {
		if at != nil {
			n.free(at)
		}
		return nil
	}
	step := n.upTo(2 * n.arena.ttl)
	if n.rng.IntN(2) == 0 {
		step = -step
	}
	s := &strike{Fault: ofServer(at), lasts: n.upTo(n.arena.ttl), begin: func() { at.clock.Skew(step) }, end: func() {
		at.clock.Skew(0)
		n.remembered(at)
	}}
	s.Forgets, s.Excuses, s.Reorders = true, true, true
	return s
}

// demote makes a master a replica while clients use it. It keeps its data and connections, and refuses writes. The
// sentinels of a single group promote another server then; elsewhere it becomes a master again.
func (n *nemesis) demote() *strike {
	if n.arena.cluster != nil { // there it refuses
		return nil
	}
	at := n.server()
	if at == nil {
		return nil
	}
	if at.replica || at.group != nil && at.group.Master() != at.process {
		n.free(at)
		return nil
	}
	if at.group != nil && len(n.arena.masters) == 1 {
		n.free(at)
		return n.change(&strike{Fault: ofServer(at)}, func() {
			master := at.group.Master()
			replicaOfNone(master)
			at.group.AwaitMaster(master)
			at.group.WaitReady()
		})
	}
	return &strike{Fault: ofServer(at), lasts: n.lasts(), begin: func() { replicaOfNone(at) }, end: func() {
		_, _ = at.Command("REPLICAOF", "NO", "ONE")
		n.free(at)
	}}
}

// replicaOfNone makes a server a replica of an address where none answers.
func replicaOfNone(s host) { _, _ = s.Command("REPLICAOF", "127.0.0.1", "1") }

// change waits until nothing strikes a server, keeps it so, and changes the roles of servers.
func (n *nemesis) change(s *strike, roles func()) *strike {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changing {
		return nil
	}
	n.changing = true
	s.begin = func() {
		for {
			n.mu.Lock()
			quiet := len(n.busy) == 0
			n.mu.Unlock()
			if quiet {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		s.From = now()
		roles()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changing = false
	}
	return s
}

// failover has a replica promoted, as an operator does. That of one of several masters loses its last grants.
func (n *nemesis) failover() *strike {
	draw := n.rng.IntN(len(n.arena.nodes))
	at := n.arena.nodes[draw]
	switch {
	case n.arena.cluster != nil:
		return n.change(&strike{Fault: ofServer(at)}, func() {
			masters := n.arena.cluster.Masters()
			n.arena.cluster.Failover(masters[draw%len(masters)])
		})
	case at.group != nil && n.mayForget(at):
		s := &strike{Fault: ofServer(at)}
		s.Forgets = len(n.arena.masters) > 1
		return n.change(s, func() {
			at.group.Failover()
			n.remembered(at)
		})
	default:
		return nil
	}
}

// crash kills a master, and starts it again when another server has taken its place.
func (n *nemesis) crash() *strike {
	if len(n.arena.masters) > 1 || n.arena.promotable() == 0 {
		return nil
	}
	draw := n.rng.IntN(len(n.arena.nodes))
	at := n.arena.nodes[draw]
	return n.change(&strike{Fault: ofServer(at)}, func() {
		if n.arena.cluster != nil {
			masters := n.arena.cluster.Masters()
			master := masters[draw%len(masters)]
			master.Kill()
			n.arena.cluster.AwaitTakeover(master)
			startAgain(master)
			n.arena.cluster.WaitReady()
			return
		}
		master := at.group.Master()
		master.Kill()
		successor := at.group.AwaitMaster(master)
		startAgain(master)
		master.ReplicaOf(successor)
		at.group.WaitReady()
	})
}

// reshard moves the slot of a lock to another master, and leaves it between the two for a while.
func (n *nemesis) reshard() *strike {
	if n.arena.cluster == nil {
		return nil
	}
	name, pause := fmt.Sprintf("{n%d}", n.rng.IntN(n.arena.names)), n.upTo(n.arena.ttl)
	return n.change(&strike{Fault: history.Fault{Target: "the slot of " + name}}, func() {
		slot := n.arena.cluster.Slot(name)
		move := n.arena.cluster.BeginMove(slot, n.arena.cluster.Another(n.arena.cluster.Owner(slot)))
		time.Sleep(pause)
		move.End()
	})
}

// rollingRestart restarts all servers, one after the other. Behind sentinels a master hands over first.
func (n *nemesis) rollingRestart() *strike {
	return n.change(&strike{Fault: history.Fault{Target: "all servers"}}, func() {
		for _, at := range n.arena.nodes {
			for !n.mayForget(at) {
				time.Sleep(20 * time.Millisecond)
			}
			if at.group != nil && at.group.Master() == at.process {
				at.group.Failover()
			}
			s := &strike{Fault: ofServer(at), lasts: 5 * time.Millisecond}
			s.Kind, s.Forgets = "restart-in-turn", len(n.arena.masters) > 1
			s.begin, s.end = n.restartOf(at, true, false)
			n.strike(s)
			n.arena.awaitReady()
		}
	})
}

// replace puts another server in the place of a master, by the documented procedure: without clients, after the longest
// TTL, and with the marker of the set deleted everywhere.
func (n *nemesis) replace() *strike {
	if !n.arena.empty || n.arena.cfg.replicas > 0 || n.arena.cfg.deployment == embedded {
		return nil
	}
	i := n.rng.IntN(len(n.arena.nodes))
	old := n.arena.nodes[i]
	s := &strike{Fault: ofServer(old)}
	s.Masters = nil
	s.begin = func() {
		n.arena.restart(func() {
			old.Kill()
			fresh := n.arena.newServer(n.arena.t, n.arena.cfg, old.master)
			n.arena.nodes[i], n.arena.masters[i] = fresh, endpoint{Addrs: []string{fresh.Addr()}}
			for _, links := range n.arena.links {
				links[i] = &link{testredis.NewProxy(n.arena.t, fresh.Addr()), fresh.master}
			}
			time.Sleep(max(n.arena.longest, 2*time.Second))
			n.arena.deleteMarkers()
		})
		n.replaced = true
	}
	s.Forgets = true
	return s
}
