package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed74116694/fencelock/chaos/history"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
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
	busy     map[int]bool      // masters that are down or about to go down
	oblivion map[int]time.Time // until when a master that lost its data may not vote
}

// strike is one fault: what the history says of it, its duration, and how it begins and ends. end may be nil.
type strike struct {
	history.Fault
	lasts      time.Duration
	begin, end func()
	links      []*testredis.Proxy // that it strikes
}

// kinds are the faults by name. A nil strike means that the fault cannot strike now.
var kinds = map[string]func(n *nemesis) *strike{
	"restart":        func(n *nemesis) *strike { return n.restart(false, false) },
	"restart-old":    func(n *nemesis) *strike { return n.restart(true, false) },
	"restart-warm":   func(n *nemesis) *strike { return n.restart(true, true) },
	"save":           (*nemesis).save,
	"freeze-server":  (*nemesis).freezeServer,
	"freeze-quorum":  (*nemesis).freezeQuorum,
	"freeze-worker":  (*nemesis).freezeWorker,
	"kill-worker":    (*nemesis).killWorker,
	"flush":          (*nemesis).flush,
	"delete-key":     (*nemesis).deleteKey,
	"script-flush":   func(n *nemesis) *strike { return n.command("SCRIPT", "FLUSH") },
	"kill-clients":   func(n *nemesis) *strike { return n.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
	"kill-listeners": func(n *nemesis) *strike { return n.command("CLIENT", "KILL", "TYPE", "pubsub") },
	"memory":         (*nemesis).memory,
	"cut":            func(n *nemesis) *strike { return n.link((*testredis.Proxy).Cut, nil) },
	"refuse": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.Refuse(); p.Cut() }, (*testredis.Proxy).Restore)
	},
	"blackhole": func(n *nemesis) *strike {
		d := n.direction()
		return n.link(func(p *testredis.Proxy) { p.Blackhole(d) }, func(p *testredis.Proxy) { p.Restore(); p.Cut() })
	},
	"half-open": func(n *nemesis) *strike {
		d := n.direction()
		return silent(n.link(func(p *testredis.Proxy) { p.Blackhole(d) }, (*testredis.Proxy).Restore))
	},
	"hold": func(n *nemesis) *strike {
		d := n.direction()
		return n.link(func(p *testredis.Proxy) { p.Hold(d) }, (*testredis.Proxy).Restore)
	},
	"delay": func(n *nemesis) *strike {
		d, most := n.direction(), n.upTo(300*time.Millisecond)
		return n.link(func(p *testredis.Proxy) { p.DelayFunc(d, func() time.Duration { return rand.N(most) }) },
			func(p *testredis.Proxy) { p.Delay(0) })
	},
	"slow": func(n *nemesis) *strike {
		d := n.direction()
		return n.link(func(p *testredis.Proxy) { p.DelayDir(d, n.arena.ttl/2) }, func(p *testredis.Proxy) { p.Delay(0) })
	},
	"lose-messages": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.DropPushes(func([]string) bool { return rand.IntN(2) == 0 }) },
			func(p *testredis.Proxy) { p.DropPushes(nil) })
	},
	"late": func(n *nemesis) *strike {
		d := n.direction()
		return n.link(func(p *testredis.Proxy) { p.DelayFunc(d, func() time.Duration { return rand.N(2 * n.arena.ttl) }) },
			func(p *testredis.Proxy) { p.Delay(0) })
	},
	"lose-reply":   func(n *nemesis) *strike { return n.nextCall((*testredis.Proxy).DropNextReply) },
	"mute-reply":   func(n *nemesis) *strike { return silent(n.nextCall((*testredis.Proxy).MuteNextReply)) },
	"lose-command": func(n *nemesis) *strike { return n.nextCall((*testredis.Proxy).DropNextCommand) },
	"run-twice": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.Duplicate(testredis.Named("EVALSHA"), nil) },
			func(p *testredis.Proxy) { p.Duplicate(nil, nil) })
	},
}

// Now and then nothing strikes for a while, because some promises hold only then.
const untilCalm, calmness = 20 * time.Second, 8 * time.Second

// rage strikes until the time is over, and returns when every fault has ended.
func (n *nemesis) rage(until time.Time, gap time.Duration) {
	n.busy, n.oblivion = map[int]bool{}, map[int]time.Time{}
	calm := time.Now().Add(untilCalm)
	for time.Now().Before(until) {
		if time.Now().After(calm) {
			n.all.Wait()
			time.Sleep(calmness)
			calm = time.Now().Add(untilCalm)
		}
		time.Sleep(n.upTo(gap))
		kind := n.kinds[n.rng.IntN(len(n.kinds))]
		s := kinds[kind](n)
		if s == nil {
			continue
		}
		s.Kind, s.From = kind, now()
		n.all.Go(func() {
			s.begin()
			if s.end != nil {
				time.Sleep(s.lasts)
				s.end()
			}
			s.Until = now()
			n.mu.Lock()
			defer n.mu.Unlock()
			n.faults = append(n.faults, s.Fault)
		})
	}
	n.all.Wait()
	for _, links := range n.arena.links {
		for _, link := range links {
			link.Restore()
			link.Delay(0)
			link.DropPushes(nil)
			link.Duplicate(nil, nil)
		}
	}
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

func (n *nemesis) direction() testredis.Direction {
	return []testredis.Direction{testredis.ToServer, testredis.ToClient, testredis.Both}[n.rng.IntN(3)]
}

// server draws a running master.
func (n *nemesis) server() (int, *testredis.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := n.rng.IntN(len(n.arena.servers))
	if n.busy[i] {
		return -1, nil
	}
	return i, n.arena.servers[i]
}

// forgets draws a master that may lose its data now: of several a minority at a time.
func (n *nemesis) forgets() (int, *testredis.Server) {
	i, server := n.server()
	if i < 0 {
		return -1, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	others := 0
	for other := range n.arena.servers {
		if other != i && (n.busy[other] || time.Now().Before(n.oblivion[other])) {
			others++
		}
	}
	if others >= (len(n.arena.servers)-1)/2 && len(n.arena.servers) > 1 {
		return -1, nil
	}
	n.busy[i] = true
	return i, server
}

// remembered records that the master is back, and may not vote until the holds that it lost have expired.
func (n *nemesis) remembered(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy[i] = false
	n.oblivion[i] = time.Now().Add(max(n.arena.longest, 2*time.Second)*11/10 + 300*time.Millisecond)
}

func ofWorker(w *process) history.Fault {
	return history.Fault{Target: fmt.Sprint("worker ", w.slot), Workers: []int{w.slot}}
}

func ofMaster(i int) history.Fault {
	return history.Fault{Target: fmt.Sprint("master ", i), Masters: []int{i}}
}

// restart kills a server. A single one keeps its data; of several one comes back empty, or with the data of its last
// save.
func (n *nemesis) restart(old, warm bool) *strike {
	i, server := n.forgets()
	if i < 0 {
		return nil
	}
	lasts := n.upTo(n.arena.ttl / 2)
	if n.rng.IntN(2) == 0 {
		lasts = 5 * time.Millisecond
	}
	salt, fault := "", ofMaster(i)
	fault.Forgets = len(n.arena.servers) > 1
	return &strike{Fault: fault, lasts: lasts, begin: func() {
		if warm {
			set, _ := server.Command("HGET", "fencelock:master", "set")
			salt, _ = set.(string)
		}
		if !old && len(n.arena.servers) > 1 {
			n.arena.forgetSave(server)
		}
		server.Kill()
	}, end: func() {
		server.Restart()
		if warm {
			for _, source := range scripts.All() {
				_, _ = server.Command("SCRIPT", "LOAD", source+"\n-- "+salt+"\n")
			}
		}
		n.remembered(i)
	}}
}

// save has a master keep its data of this moment, for a restart from an old state.
func (n *nemesis) save() *strike {
	if len(n.arena.servers) == 1 {
		return nil
	}
	return n.command("SAVE")
}

// forgetSave removes a server's save.
func (a *arena) forgetSave(server *testredis.Server) {
	if reply, err := server.Command("CONFIG", "GET", "dir"); err == nil {
		if pair, ok := reply.([]any); ok && len(pair) == 2 {
			_ = os.Remove(filepath.Join(pair[1].(string), "dump.rdb"))
		}
	}
}

func (n *nemesis) command(args ...string) *strike {
	i, server := n.server()
	if i < 0 {
		return nil
	}
	return &strike{Fault: ofMaster(i), begin: func() { _, _ = server.Command(args...) }}
}

func (n *nemesis) freezeServer() *strike {
	i, server := n.server()
	if i < 0 {
		return nil
	}
	return &strike{Fault: ofMaster(i), lasts: n.lasts(), begin: server.Freeze, end: server.Thaw}
}

func (n *nemesis) freezeQuorum() *strike {
	servers := slices.Clone(n.arena.servers)
	n.rng.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	servers = servers[:len(servers)/2+1]
	each := func(f func(*testredis.Server)) func() {
		return func() {
			for _, s := range servers {
				f(s)
			}
		}
	}
	return &strike{
		Fault: history.Fault{Target: "a quorum"}, lasts: n.lasts(),
		begin: each((*testredis.Server).Freeze), end: each((*testredis.Server).Thaw),
	}
}

func (n *nemesis) freezeWorker() *strike {
	w := n.arena.workers[n.rng.IntN(len(n.arena.workers))]
	return &strike{
		Fault: ofWorker(w), lasts: n.lasts(),
		begin: func() { w.signal(syscall.SIGSTOP) }, end: func() { w.signal(syscall.SIGCONT) },
	}
}

func (n *nemesis) killWorker() *strike {
	w := n.arena.workers[n.rng.IntN(len(n.arena.workers))]
	return &strike{Fault: ofWorker(w), begin: func() { n.arena.replace(w) }}
}

// flush empties one of several masters.
func (n *nemesis) flush() *strike {
	if len(n.arena.servers) == 1 {
		return nil
	}
	i, server := n.forgets()
	if i < 0 {
		return nil
	}
	fault := ofMaster(i)
	fault.Forgets = true
	return &strike{Fault: fault, begin: func() {
		_, _ = server.Command("FLUSHALL")
		n.remembered(i)
	}}
}

// deleteKey deletes one of the keys that a lock has in addition to its hash: the queue of waiters, or the sidelined
// waiters.
func (n *nemesis) deleteKey() *strike {
	key := fmt.Sprintf("fencelock:{n%d}:%s", n.rng.IntN(n.arena.names), []string{"q", "p"}[n.rng.IntN(2)])
	return n.command("DEL", key)
}

// memory makes a server refuse to store anything new.
func (n *nemesis) memory() *strike {
	i, server := n.server()
	if i < 0 {
		return nil
	}
	set := func(limit string) func() {
		return func() { _, _ = server.Command("CONFIG", "SET", "maxmemory", limit) }
	}
	return &strike{Fault: ofMaster(i), lasts: n.lasts(), begin: set("1"), end: set("0")}
}

// link strikes the links of some workers to some masters.
func (n *nemesis) link(begin, end func(*testredis.Proxy)) *strike {
	workers := n.rng.Perm(len(n.arena.links))[:1+n.rng.IntN(len(n.arena.links))]
	masters := n.rng.Perm(len(n.arena.links[0]))[:1+n.rng.IntN(len(n.arena.links[0]))]
	s := &strike{Fault: history.Fault{
		Target: fmt.Sprintf("workers %v to masters %v", workers, masters), Workers: workers, Masters: masters,
	}, lasts: n.lasts()}
	for _, w := range workers {
		for _, m := range masters {
			s.links = append(s.links, n.arena.links[w][m])
		}
	}
	each := func(f func(*testredis.Proxy)) func() {
		return func() {
			for _, link := range s.links {
				f(link)
			}
		}
	}
	s.begin = each(begin)
	if end != nil {
		s.end = each(end)
	}
	return s
}

// silence is how long a client takes at most to replace a connection that has fallen silent.
const silence = 4 * time.Second

// silent leaves connections open over which no answer will ever come, for longer than a client keeps them.
func silent(s *strike) *strike {
	end := s.end
	s.end = func() {
		end()
		time.Sleep(silence)
		for _, link := range s.links {
			link.Cut()
		}
	}
	return s
}

// nextCall strikes the next script call over some links. The fault lasts until it has struck all of them.
func (n *nemesis) nextCall(arm func(*testredis.Proxy, func([]string) bool) <-chan struct{}) *strike {
	var armed []<-chan struct{}
	s := n.link(func(p *testredis.Proxy) { armed = append(armed, arm(p, testredis.Named("EVALSHA"))) }, nil)
	s.lasts, s.end = 0, func() {
		limit := time.After(10 * time.Second)
		for _, struck := range armed {
			select {
			case <-struck:
			case <-limit:
				return
			}
		}
	}
	return s
}
