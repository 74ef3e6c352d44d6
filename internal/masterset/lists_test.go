package masterset_test

import (
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
