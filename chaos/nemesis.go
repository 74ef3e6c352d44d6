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

// strike is one fault: its target, its duration, and how it begins and ends. end may be nil.
type strike struct {
	target     string
	lasts      time.Duration
	begin, end func()
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
	"lose-reply": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.DropNextReply(testredis.Named("EVALSHA")) }, nil)
	},
	"mute-reply": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.MuteNextReply(testredis.Named("EVALSHA")) }, nil)
	},
	"lose-command": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.DropNextCommand(testredis.Named("EVALSHA")) }, nil)
	},
	"run-twice": func(n *nemesis) *strike {
		return n.link(func(p *testredis.Proxy) { p.Duplicate(testredis.Named("EVALSHA"), nil) },
			func(p *testredis.Proxy) { p.Duplicate(nil, nil) })
	},
}

// rage strikes until the time is over, and returns when every fault has ended.
func (n *nemesis) rage(until time.Time, gap time.Duration) {
	n.busy, n.oblivion = map[int]bool{}, map[int]time.Time{}
	for time.Now().Before(until) {
		time.Sleep(n.upTo(gap))
		kind := n.kinds[n.rng.IntN(len(n.kinds))]
		s := kinds[kind](n)
		if s == nil {
			continue
		}
		fault := history.Fault{Kind: kind, Target: s.target, From: now()}
		n.all.Go(func() {
			s.begin()
			if s.end != nil {
				time.Sleep(s.lasts)
				s.end()
			}
			fault.Until = now()
			n.mu.Lock()
			defer n.mu.Unlock()
			n.faults = append(n.faults, fault)
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

func masterName(i int) string { return fmt.Sprint("master ", i) }

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
	salt := ""
	return &strike{masterName(i), lasts, func() {
		if warm {
			set, _ := server.Command("HGET", "fencelock:master", "set")
			salt, _ = set.(string)
		}
		if !old && len(n.arena.servers) > 1 {
			n.arena.forgetSave(server)
		}
		server.Kill()
	}, func() {
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
	return &strike{target: masterName(i), begin: func() { _, _ = server.Command(args...) }}
}

func (n *nemesis) freezeServer() *strike {
	i, server := n.server()
	if i < 0 {
		return nil
	}
	return &strike{masterName(i), n.lasts(), server.Freeze, server.Thaw}
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
	return &strike{"a quorum", n.lasts(), each((*testredis.Server).Freeze), each((*testredis.Server).Thaw)}
}

func (n *nemesis) freezeWorker() *strike {
	w := n.arena.workers[n.rng.IntN(len(n.arena.workers))]
	return &strike{
		fmt.Sprint("worker ", w.slot), n.lasts(),
		func() { w.signal(syscall.SIGSTOP) }, func() { w.signal(syscall.SIGCONT) },
	}
}

func (n *nemesis) killWorker() *strike {
	w := n.arena.workers[n.rng.IntN(len(n.arena.workers))]
	return &strike{target: fmt.Sprint("worker ", w.slot), begin: func() { n.arena.replace(w) }}
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
	return &strike{target: masterName(i), begin: func() {
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
	return &strike{masterName(i), n.lasts(), set("1"), set("0")}
}

// link strikes the links of some workers to some masters.
func (n *nemesis) link(begin, end func(*testredis.Proxy)) *strike {
	if len(n.arena.links) == 0 {
		return nil
	}
	workers := n.rng.Perm(len(n.arena.links))[:1+n.rng.IntN(len(n.arena.links))]
	masters := n.rng.Perm(len(n.arena.links[0]))[:1+n.rng.IntN(len(n.arena.links[0]))]
	each := func(f func(*testredis.Proxy)) func() {
		if f == nil {
			return nil
		}
		return func() {
			for _, w := range workers {
				for _, m := range masters {
					f(n.arena.links[w][m])
				}
			}
		}
	}
	return &strike{fmt.Sprintf("workers %v to masters %v", workers, masters), n.lasts(), each(begin), each(end)}
}
