package masterset_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/masterset"
)

// quarantine is the longest TTL of these tests, and how long a master abstains.
const quarantine = 10 * time.Second

var errSilent = errors.New("no reply")

// world is four servers, of which a client uses three, at a, b and c. The fourth is at d, or another server behind c.
type world struct {
	t       testing.TB
	now     time.Duration
	hosts   [4]*host
	third   int // the server at c
	clients []*client
	strays  []stray       // requests without an answer that may still run
	founded time.Duration // when the masters of the first list first had a quorum that votes; 0: not yet
	runs    int           // run ids that were given
	sets    int           // ids that were given
}

// host is a server, and what is true of it.
type host struct {
	server
	process  int           // changes when its connections end
	abstains time.Duration // until when it must not vote, because of what it has forgotten
	voted    bool          // since it took its place
	snapshot map[string]string
}

// stray is a request that its client does not wait for any more.
type stray struct {
	host int
	args []string
}

// client is a process with a list of masters.
type client struct {
	*masterset.Client
	w     *world
	hosts []int // by master

	poll func() ([][]string, bool) // resumes the pass that is under way, or nil
	stop func()

	open    [][]string // by master: the request that is under way
	answers []masterset.Answer
	read    []int // by master: the process that the last answer is from

	ids       []string // by master: the identity that goes with votes
	processes []int    // by master: over whose connection it was read
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: 1_700_000_000 * time.Second, third: 2}
	for i := range w.hosts {
		w.hosts[i] = &host{server: server{marker: make(map[string]string)}}
		w.newProcess(i)
	}
	w.clients = []*client{w.newClient("a b c"), w.newClient("a b c")}
	return w
}

func (w *world) newClient(list string) *client {
	hosts := []int{0, 1, w.third}
	if list == "a b d" {
		hosts[2] = 3
	}
	return &client{
		Client: masterset.NewClient(quarantine, names(list)...), w: w, hosts: hosts,
		read: make([]int, 3), ids: []string{"?", "?", "?"}, processes: make([]int, 3),
	}
}

func (w *world) newProcess(i int) {
	w.runs++
	h := w.hosts[i]
	h.run = fmt.Sprintf("%x", (w.runs*7919)%4096+4096) // not in the order in which they begin
	h.process = w.runs
}

// takeOver has the other server answer at c: as a copy of the one that did, or with what it had before. In the second
// case it has been restarted, as the documents demand, unless all other masters know of the one that answered since; so
// has a copy of its own copy.
func (w *world) takeOver(copied bool) {
	from := w.hosts[w.third]
	w.third = 5 - w.third
	to := w.hosts[w.third]
	if copied {
		w.lose(w.third, from.marker)
		if from.marker["run"] == to.run {
			w.newProcess(w.third)
		}
	} else if from.voted {
		w.lose(w.third, to.marker) // it has missed what the other has counted
		for _, other := range w.hosts[:2] {
			if !strings.Contains(other.marker["terms"], from.run) {
				w.newProcess(w.third)
			}
		}
	}
	from.voted = false
	w.runs += 2
	from.process, to.process = w.runs-1, w.runs
	for _, c := range w.clients {
		c.hosts[2] = w.third
	}
}

func (w *world) newSet() string {
	w.sets++
	return "S" + strconv.Itoa((w.sets*5)%16)
}

// votes reports whether the server votes for the client: the rule of vote.lua, and of the transport.
func (c *client) votes(master int) bool {
	h := c.w.hosts[c.hosts[master]]
	until, err := strconv.ParseInt(h.marker["until"], 10, 64)
	return c.processes[master] == h.process && c.ids[master] == h.marker["id"] && err == nil &&
		until <= c.w.now.Milliseconds()
}

// voters returns the servers that vote for the client.
func (c *client) voters() (all []int) {
	for i, h := range c.hosts {
		if c.votes(i) {
			all = append(all, h)
		}
	}
	return all
}

// step goes on with the client's pass, or begins one.
func (c *client) step() {
	if c.poll == nil {
		c.poll, c.stop = iter.Pull(c.pass)
	}
	var more bool
	if c.open, more = c.poll(); !more {
		c.poll, c.open = nil, nil
		return
	}
	c.answers = make([]masterset.Answer, len(c.open))
	for i := range c.answers {
		c.answers[i].Err = errSilent
	}
}

// pass yields the requests of one pass.
func (c *client) pass(yield func([][]string) bool) {
	alive := true
	ask := func(requests [][]string) []masterset.Answer {
		if alive = alive && yield(requests); !alive {
			return slices.Repeat([]masterset.Answer{{Err: errSilent}}, len(requests))
		}
		return c.answers
	}
	found, _ := c.Bootstrap(ask, c.w.newSet)
	if !alive {
		return
	}
	for i, f := range found {
		if f.State == "silent" {
			continue
		}
		c.ids[i], c.processes[i] = "?", c.read[i]
		if f.InOrder {
			c.ids[i] = f.ID
		}
	}
}

// deliver runs the client's request to a master, and brings the answer.
func (c *client) deliver(master int) {
	if c.open == nil || c.open[master] == nil {
		return
	}
	i := c.hosts[master]
	c.answers[master] = c.w.run(i, c.open[master])
	c.read[master] = c.w.hosts[i].process
	c.open[master] = nil
}

// goOn ends the wait for answers. What was not answered may run later.
func (c *client) goOn() {
	for i, args := range c.open {
		if args != nil {
			c.w.strays = append(c.w.strays, stray{c.hosts[i], args})
		}
	}
	c.step()
}

// run runs a request. A term may begin only for a server that is in its seat.
func (w *world) run(i int, args []string) masterset.Answer {
	h := w.hosts[i]
	h.now = w.now
	return h.call(args)
}

func (w *world) runStray(n int) {
	if len(w.strays) == 0 {
		return
	}
	at := n % len(w.strays)
	s := w.strays[at]
	w.strays = slices.Delete(w.strays, at, at+1)
	w.run(s.host, s.args)
}

// mayLose reports whether the promise holds when server i loses data: it is a minority that does.
func (w *world) mayLose(i int) bool {
	for _, other := range []int{0, 1, w.third} {
		if h := w.hosts[other]; other != i && (w.now < h.abstains || h.marker["set"] == "") {
			return false
		}
	}
	return true
}

// lose has the server go back to these data.
func (w *world) lose(i int, data map[string]string) {
	w.hosts[i].marker = maps.Clone(data)
	w.hosts[i].abstains = w.now + quarantine
}

// advance lets time pass. No client waits for an answer that long.
func (w *world) advance(d time.Duration) {
	for _, c := range w.clients {
		if c.open != nil {
			c.goOn()
		}
	}
	w.now += d
}

// check is what must hold at any time.
func (w *world) check() {
	for n, c := range w.clients {
		voters := c.voters()
		for _, i := range voters {
			h := w.hosts[i]
			if h.voted = true; w.now < h.abstains {
				w.t.Fatalf("client %d: server %d votes %v too early", n, i, h.abstains-w.now)
			}
		}
		if len(voters) < 2 {
			continue
		}
		if w.founded == 0 {
			w.founded = w.now
		}
		for m, other := range w.clients[:n] {
			if theirs := other.voters(); len(theirs) >= 2 && len(union(voters, theirs)) >= 4 {
				w.t.Fatalf("clients %d and %d have quorums that share no server: %v and %v", m, n, theirs, voters)
			}
		}
	}
}

func union(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// calm has all requests run and all clients look often enough, so that all masters of the first list vote.
func (w *world) calm() {
	for len(w.strays) > 0 {
		w.runStray(0)
	}
	for range 15 {
		w.advance(time.Second)
		for _, c := range w.clients {
			for range 20 {
				for i := range c.hosts {
					c.deliver(i)
				}
				if c.step(); c.poll == nil {
					break
				}
			}
		}
		for len(w.strays) > 0 {
			w.runStray(0)
		}
		w.check()
	}
	for n, c := range w.clients {
		if voters := c.voters(); len(voters) < 2 || c.hosts[2] == w.third && len(voters) < 3 {
			w.t.Fatalf("client %d: only %v vote in the end", n, voters)
		}
	}
}

// end ends the passes that are under way.
func (w *world) end() {
	for _, c := range w.clients {
		if c.poll != nil {
			c.stop()
		}
	}
}
