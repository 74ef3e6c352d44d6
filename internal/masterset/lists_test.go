package masterset_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// worldOfLists has servers without markers, with these run ids, and two clients whose lists differ in one master.
func worldOfLists(t testing.TB, runs ...string) *world {
	w := newWorld(t)
	t.Cleanup(w.end)
	w.clients[1] = w.newClient("a b d")
	for i, run := range runs {
		w.hosts[i].run = run
	}
	return w
}

// start has both clients make passes in any order, with an answer of each master.
func (w *world) start(random *rand.Rand) {
	for range 60 {
		c := w.clients[random.IntN(2)]
		for _, i := range random.Perm(3)[:random.IntN(4)] {
			c.deliver(i)
		}
		if c.isAnswered() {
			c.step()
		}
	}
}

// isAnswered reports whether no request of the client is under way.
func (c *client) isAnswered() bool {
	for _, args := range c.open {
		if args != nil {
			return false
		}
	}
	return true
}

// haveSeparateQuorums reports whether the two clients have quorums that share no server.
func (w *world) haveSeparateQuorums() bool {
	one, two := w.clients[0].voters(), w.clients[1].voters()
	return len(one) >= 2 && len(two) >= 2 && len(union(one, two)) == 4
}

// Clients with different lists of masters start at the same moment, over masters without markers. If the master that
// names the set is on both lists, there is one set. Otherwise there may be two: this is a limit, which
// docs/deployments.md states. All clients must be given the same list.
func TestListsThatDifferAtFirstStart(t *testing.T) {
	for what, c := range map[string]struct {
		runs     []string // of a, b, c and d; the smallest one on its list names a client's set
		separate bool
	}{
		"both sets are named by a shared master": {[]string{"1", "4", "2", "3"}, false},
		"none is":                                {[]string{"3", "4", "1", "2"}, true},
		"one is":                                 {[]string{"2", "4", "1", "3"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			random, separate, both := rand.New(rand.NewPCG(1, 1)), false, 0
			for range 300 {
				w := worldOfLists(t, c.runs...)
				w.start(random)
				w.advance(quarantine)
				separate = separate || w.haveSeparateQuorums()
				if len(w.clients[0].voters()) >= 2 && len(w.clients[1].voters()) >= 2 {
					both++
				}
			}
			require.Equal(t, c.separate, separate)
			require.Greater(t, both, 30)
		})
	}
}

// A client with another list comes to a set that has markers. It takes part by the masters that it shares, and has no
// separate quorum, unless none of them shows it the set: one is silent, and the other one has lost its data.
func TestListThatDiffersLater(t *testing.T) {
	for what, c := range map[string]struct {
		lost, silent bool
		separate     bool
	}{
		"all masters show the set":                 {false, false, false},
		"one has lost its data":                    {true, false, false},
		"one is silent":                            {false, true, false},
		"one has lost its data, and one is silent": {true, true, true},
	} {
		t.Run(what, func(t *testing.T) {
			w := worldOfLists(t, "1", "2", "3", "4")
			first, other := w.clients[0], w.clients[1]
			for range 6 {
				first.step()
				first.deliverAll(0, 1, 2)
			}
			w.advance(quarantine)
			require.Len(t, first.voters(), 3)
			if c.lost {
				w.lose(0, nil)
			}
			answer := []int{0, 1, 2}
			if c.silent {
				answer = []int{0, 2}
			}
			for range 12 {
				other.step()
				other.deliverAll(answer...)
			}
			w.advance(quarantine + time.Second)
			require.Equal(t, c.separate, w.haveSeparateQuorums(), "%v %v", first.voters(), other.voters())
		})
	}
}

func (c *client) deliverAll(masters ...int) {
	for _, i := range masters {
		c.deliver(i)
	}
}

// replacement is a world in which the server at c is replaced by the one at d, as redlock.WithQuarantine says, while
// one of the other masters may be away. The faults before and after are random: masters that are silent, restart, lose
// their data, or go back to a save, also to one of before the replacement.
type replacement struct {
	*world
	random  *rand.Rand
	silent  [4]bool
	old     map[string]bool // the sets of before
	byHand  [4]bool         // the marker that the master has, or may have, has to be deleted by hand
	already bool            // the server was replaced
}

var replacements = flag.Int("masterset.replacements", 30, "how many random replacements of a master are played")

// TestReplacementAtRandom: no master votes before what it may have forgotten has expired, no two clients have quorums
// that share no server, and in the end all masters vote, although no marker is deleted by hand but those of before the
// replacement.
func TestReplacementAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range *replacements {
		r := &replacement{world: newWorld(t), random: random, old: make(map[string]bool)}
		for range 100 {
			r.step()
		}
		r.replace()
		for range 300 {
			r.step()
		}
		r.heal()
		r.end()
	}
}

// step is one event.
func (r *replacement) step() {
	c, i := r.clients[r.random.IntN(len(r.clients))], r.random.IntN(3)
	if i == 2 {
		i = r.third
	}
	h := r.hosts[i]
	switch n := r.random.IntN(60); {
	case n < 12:
		if master := r.random.IntN(3); !r.silent[c.hosts[master]] {
			c.deliver(master)
		}
	case n < 18:
		if c.open != nil {
			c.goOn()
		} else {
			c.step()
		}
	case n < 33:
		r.pass(c)
	case n < 36:
		r.runStray(r.random.IntN(100))
	case n < 40:
		r.advance(time.Second)
	case n < 44:
		r.advance(quarantine / 2)
	case n < 48:
		r.silent[i] = !r.silent[i]
	case n < 50:
		r.silent = [4]bool{}
	case n < 51:
		if r.mayForget(i) {
			r.restart(i, h.marker)
		}
	case n < 53:
		if r.mayForget(i) {
			r.restart(i, h.snapshot)
			r.byHand[i] = r.byHand[i] || r.old[h.snapshot["set"]]
		}
	case n < 55:
		if r.mayForget(i) {
			r.restart(i, nil)
		}
	case n < 56:
		if r.mayForget(i) {
			r.lose(i, nil)
		}
	case n < 58:
		h.snapshot = maps.Clone(h.marker)
	case n < 59:
		if h.marker["run"] != h.run {
			delete(h.marker, "id")
		}
	default: // a new process
		if c.poll != nil {
			c.stop()
		}
		*c = *r.newClient(r.list())
	}
	r.check()
}

// mayForget reports whether the promise holds when a server loses data, and another one knows the present set then.
func (r *replacement) mayForget(i int) bool {
	outdated := 0
	for _, other := range []int{0, 1, r.third} {
		if other != i && r.old[r.hosts[other].marker["set"]] {
			outdated++
		}
	}
	return outdated < 2 && r.mayLose(i)
}

// pass has the client make a pass, or end the one that is under way. The masters that are not silent answer.
func (r *replacement) pass(c *client) {
	for range 20 {
		for i, h := range c.hosts {
			if !r.silent[h] {
				c.deliver(i)
			}
		}
		if c.open != nil {
			c.goOn()
		} else if c.step(); c.poll == nil {
			return
		}
	}
}

func (r *replacement) list() string {
	if r.already {
		return "a b d"
	}
	return "a b c"
}

// replace is what the documents demand: all clients are stopped for as long as a lease may last, the markers are
// deleted on the servers of the new list, and the clients start.
func (r *replacement) replace() {
	r.end()
	r.clients, r.strays = nil, nil
	r.advance(quarantine)
	for _, h := range r.hosts {
		r.old[h.marker["set"]] = true
	}
	delete(r.old, "")
	r.third, r.already, r.founded, r.silent = 3, true, 0, [4]bool{}
	away := r.random.IntN(3) // 2: none
	for i := range r.hosts {
		r.hosts[i].abstains = 0
		if i == away {
			r.silent[i], r.byHand[i] = true, true
		} else {
			r.hosts[i].marker = make(map[string]string)
		}
	}
	r.clients = []*client{r.newClient("a b d"), r.newClient("a b d")}
}

// heal ends the faults, and deletes what has to be deleted by hand.
func (r *replacement) heal() {
	r.silent = [4]bool{}
	for i, byHand := range r.byHand {
		if byHand && r.old[r.hosts[i].marker["set"]] {
			r.hosts[i].marker = make(map[string]string)
		}
	}
	r.calm()
	for _, i := range []int{0, 1, 3} {
		m := r.hosts[i].marker
		require.False(r.t, r.old[m["set"]], "server %d belongs to the set of before", i)
	}
}
