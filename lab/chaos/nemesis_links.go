package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// link strikes the links of some workers to some servers.
func (n *nemesis) link(begin, end func(*link)) *strike {
	links := n.arena.links
	workers := n.rng.Perm(len(links))[:1+n.rng.IntN(len(links))]
	nodes := n.rng.Perm(len(links[0]))[:1+n.rng.IntN(len(links[0]))]
	s := &strike{Fault: history.Fault{Workers: workers}, lasts: n.lasts()}
	for _, i := range nodes {
		if master := links[0][i].master; !slices.Contains(s.Masters, master) {
			s.Masters = append(s.Masters, master)
		}
		for _, w := range workers {
			s.links = append(s.links, links[w][i])
		}
	}
	s.Target = fmt.Sprintf("workers %v to masters %v", workers, s.Masters)
	each := func(f func(*link)) func() {
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

func (n *nemesis) direction() testredis.Direction {
	return []testredis.Direction{testredis.ToServer, testredis.ToClient, testredis.Both}[n.rng.IntN(3)]
}

func restore(l *link) { l.Restore() }

func (n *nemesis) cut() *strike { return n.link(func(l *link) { l.Cut() }, nil) }

func (n *nemesis) refuse() *strike {
	return n.link(func(l *link) { l.Refuse(); l.Cut() }, restore)
}

// blackhole loses all bytes, of one direction or of both.
func (n *nemesis) blackhole() *strike {
	d := n.direction()
	return n.link(func(l *link) { l.Blackhole(d) }, func(l *link) { l.Restore(); l.Cut() })
}

// halfOpen is a blackhole after which the old connections stay open.
func (n *nemesis) halfOpen() *strike {
	d := n.direction()
	return silent(n.link(func(l *link) { l.Blackhole(d) }, restore))
}

func (n *nemesis) hold() *strike {
	d := n.direction()
	return n.link(func(l *link) { l.Hold(d) }, restore)
}

func (n *nemesis) delay() *strike {
	most := n.upTo(300 * time.Millisecond)
	return n.delays(func() time.Duration { return rand.N(most) })
}

func (n *nemesis) slow() *strike {
	return n.delays(func() time.Duration { return n.arena.ttl / 2 })
}

func (n *nemesis) late() *strike {
	return n.delays(func() time.Duration { return rand.N(2 * n.arena.ttl) })
}

// delays keeps messages back. The last ones arrive after its end, so it is followed by a cut.
func (n *nemesis) delays(of func() time.Duration) *strike {
	d := n.direction()
	return n.link(func(l *link) { l.DelayFunc(d, of) }, func(l *link) { l.Delay(0); l.Cut() })
}

// stray resets connections. What they have carried a moment before arrives later, after the bytes of the connections
// that follow: a release overtakes its request so.
func (n *nemesis) stray() *strike {
	var strays []testredis.Strays
	held := n.upTo(40 * time.Millisecond)
	s := n.link(func(l *link) { strays = append(strays, l.Stray()) }, nil)
	begin := s.begin
	s.lasts = n.upTo(2 * n.arena.ttl)
	s.begin = func() {
		begin()
		time.Sleep(held)
		for _, stray := range strays {
			stray.Reset()
		}
	}
	s.end = func() {
		for _, stray := range strays {
			stray.Deliver()
		}
	}
	return s
}

func (n *nemesis) loseMessages() *strike {
	return n.link(func(l *link) { l.DropPushes(sometimes) }, func(l *link) { l.DropPushes(nil) })
}

func (n *nemesis) duplicateMessages() *strike {
	return n.link(func(l *link) { l.DuplicatePushes(sometimes) }, func(l *link) { l.DuplicatePushes(nil) })
}

func sometimes([]string) bool { return rand.IntN(2) == 0 }

func (n *nemesis) runTwice() *strike {
	return n.link(func(l *link) { l.Duplicate(testredis.Named("EVALSHA"), nil) }, func(l *link) { l.Duplicate(nil, nil) })
}

func (n *nemesis) loseReply() *strike   { return n.nextCall((*testredis.Link).DropNextReply) }
func (n *nemesis) loseCommand() *strike { return n.nextCall((*testredis.Link).DropNextCommand) }
func (n *nemesis) muteReply() *strike   { return silent(n.nextCall((*testredis.Link).MuteNextReply)) }

// nextCall strikes the next script call over some links. The fault lasts until it has struck all of them.
func (n *nemesis) nextCall(arm func(*testredis.Link, func([]string) bool) <-chan struct{}) *strike {
	var armed []<-chan struct{}
	s := n.link(func(l *link) { armed = append(armed, arm(l.Link, testredis.Named("EVALSHA"))) }, nil)
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
