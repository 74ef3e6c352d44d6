package masterset_test

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// FuzzBootstrap has clients look at masters that restart, lose data and go back to an earlier save, in any order. The
// oracle is what the masters really have forgotten:
//
//   - no master that has lost data votes for a client before what it may have forgotten has expired;
//   - no two clients have quorums that share no server, also if the list of one has a server that was made a copy of a
//     master;
//   - once all is calm, all masters vote.
func FuzzBootstrap(f *testing.F) {
	source := rand.NewChaCha8([32]byte{1})
	for range 20 {
		seed := make([]byte, 200)
		_, _ = source.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, events []byte) { play(t, events) })
}

// TestBootstrapAtRandom plays more runs than a fuzz target's seeds do.
func TestBootstrapAtRandom(t *testing.T) {
	source := rand.NewChaCha8([32]byte{2})
	events := make([]byte, 300)
	for range testredis.Few(200, 1_000) {
		_, _ = source.Read(events)
		play(t, events)
	}
}

func play(t testing.TB, events []byte) {
	w := newWorld(t)
	defer w.end()
	pair := len(events) > 0 && events[0]%2 == 0
	for _, e := range events {
		w.step(e%32, int(e/32), pair)
		w.check()
	}
	w.calm()
}

// step is one event. The fourth server is a pair with the third, or at an address of its own.
func (w *world) step(event byte, n int, pair bool) {
	c := w.clients[n%len(w.clients)]
	i := n % 3
	if i == 2 {
		i = w.third
	}
	h := w.hosts[i]
	switch event {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11:
		c.deliver(int(event) % 3)
	case 12, 13, 14, 15, 16, 17:
		if c.open != nil {
			c.goOn()
		} else {
			c.step()
		}
	case 18, 19:
		w.runStray(n)
	case 20, 21:
		w.advance(time.Second)
	case 22:
		w.advance(quarantine / 2)
	case 23:
		w.restart(i, h.marker)
	case 24:
		w.restart(i, h.snapshot)
	case 25:
		w.restart(i, nil)
	case 26:
		if w.mayLose(i) { // FLUSHALL
			w.lose(i, nil)
		}
	case 27:
		h.snapshot = maps.Clone(h.marker)
	case 28: // a script that was sent whole compares the run ids
		if h.marker["run"] != h.run {
			delete(h.marker, "id")
		}
	case 29: // a new client
		if c.poll != nil {
			c.stop()
		}
		list := "a b c"
		if c.hosts[2] != w.third {
			list = "a b d"
		}
		*c = *w.newClient(list)
	case 30: // c is to be moved to d
		if !pair && w.founded > 0 && len(w.clients) == 2 {
			w.clients = append(w.clients, w.newClient("a b d"))
		}
	case 31: // a server takes the place of c, or is made a copy of it
		if !pair {
			w.newProcess(3)
			w.lose(3, w.hosts[2].marker)
		} else if w.mayLose(w.third) {
			w.takeOver(n%2 == 0)
		}
	}
}

// restart begins a new process, with these data.
func (w *world) restart(i int, data map[string]string) {
	if w.mayLose(i) {
		w.newProcess(i)
		w.lose(i, data)
	}
}
