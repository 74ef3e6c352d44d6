package localqueue_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/localqueue"
)

// The events of a script and what its waiters have come to. The first letter of a waiter is its mode.
func TestQueue(t *testing.T) {
	for name, c := range map[string]struct{ events, want string }{
		"the first waiter leads where there is no holder": {
			"queue w1, queue r2", "w1 leads, r2 waits",
		},
		"a writer that leads is admitted alone": {
			"queue w1, queue r2, acquired", "w1 admitted, r2 waits",
		},
		"a reader that leads is admitted with the readers behind it": {
			"queue r1, queue r2, queue w3, queue r4, acquired", "r1 admitted, r2 admitted, w3 waits, r4 waits",
		},
		"readers between two writers enter together": {
			"enter w, queue r1, queue r2, queue w3, queue r4, leave w, admit",
			"r1 admitted, r2 admitted, w3 waits, r4 waits",
		},
		"a writer is admitted after the last reader": {
			"enter r, join, queue w1, leave r, leave r, admit", "w1 admitted",
		},
		"a reader that stays keeps a writer out": {
			"enter r, join, queue w1, leave r", "w1 waits",
		},
		"no waiter leads before the last holder has released": {
			"enter w, queue w1, leave w", "w1 waits",
		},
		"the first waiter leads once the last holder has released": {
			"enter w, queue w1, queue w2, leave w, resume", "w1 leads, w2 waits",
		},
		"readers join readers up to the next writer": {
			"enter r, queue r1, queue r2, queue w3, queue r4, readers", "r1 admitted, r2 admitted, w3 waits, r4 waits",
		},
		"a reader that has not joined leads after the readers": {
			"enter r, queue r1, leave r, resume", "r1 leads",
		},
		"a leader that fails is followed by the next": {
			"queue w1, queue w2, give up w1", "w2 leads",
		},
		"a writer that gives up lets the readers behind it join": {
			"enter r, queue w1, queue r2, queue r3, give up w1, readers", "r2 admitted, r3 admitted",
		},
		"a waiter in the middle gives up": {
			"enter w, queue w1, queue w2, queue w3, give up w2, leave w, admit", "w1 admitted, w3 waits",
		},
		"the last waiter gives up": {
			"enter w, queue w1, queue w2, give up w2, queue r3, leave w, admit", "w1 admitted, r3 waits",
		},
		"a single attempt has no place behind a waiter": {
			"enter w, queue r1, try r2", "r1 waits, r2 refused",
		},
		"a single attempt has no place behind a writer": {
			"enter w, try r1", "r1 refused",
		},
		"a single attempt keeps later waiters back": {
			"try w1, queue w2", "w1 leads, w2 waits",
		},
		"an upgrade goes on when the other readers have left, before waiters": {
			"enter r, join, queue w1, convert r w2, leave r", "w1 waits, w2 leads",
		},
		"an upgrade of the only reader goes on at once": {
			"enter r, convert r w1", "w1 leads",
		},
		"a second conversion is refused": {
			"enter r, join, convert r w1, convert r w2", "w1 waits, w2 refused",
		},
		"a conversion needs a holder of its mode": {
			"enter r, convert w r1", "r1 refused",
		},
		"the first reader joins after a downgrade": {
			"enter w, queue r1, convert w r2, converted r, readers", "r1 admitted, r2 leads",
		},
		"the first reader joins after an upgrade that was given up": {
			"enter r, join, convert r w1, queue r2, converted r, readers", "w1 waits, r2 admitted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, state: map[string]string{}, waiters: map[string]*localqueue.Waiter{}}
			for event := range strings.SplitSeq(c.events, ", ") {
				s.run(strings.Fields(event))
			}
			var got []string
			for _, name := range s.names {
				got = append(got, name+" "+s.state[name])
			}
			require.Equal(t, c.want, strings.Join(got, ", "))
		})
	}
}

// script runs the events of one test.
type script struct {
	t       *testing.T
	q       localqueue.Queue
	names   []string
	waiters map[string]*localqueue.Waiter
	state   map[string]string
}

func (s *script) run(event []string) {
	last := event[len(event)-1]
	switch event[0] {
	case "enter":
		require.True(s.t, s.q.IsIdle())
		s.q.Enter(modeOf(last))
	case "join":
		require.True(s.t, s.q.TryJoin())
	case "queue":
		s.q.Enqueue(s.waiter(last))
	case "try":
		s.must(last, s.q.TryLead(s.waiter(last)), "leads")
	case "convert":
		held, _ := s.q.BeginConversion(s.waiter(last), modeOf(event[1]))
		s.must(last, held, s.state[last])
	case "converted":
		s.q.EndConversion(modeOf(last))
	case "acquired":
		s.q.AdmitLeader()
	case "admit":
		s.q.AdmitFirst()
	case "readers":
		require.True(s.t, s.q.MayJoin())
		s.q.JoinReaders()
	case "resume":
		s.q.Resume()
	case "leave":
		held, _ := s.q.Leave(modeOf(last))
		require.True(s.t, held)
	case "give":
		require.True(s.t, s.q.GiveUp(s.waiters[last]))
		s.names = slices.DeleteFunc(s.names, func(name string) bool { return name == last })
	}
	for name, w := range s.waiters {
		select {
		case <-w.Turn():
			s.state[name] = "leads"
		default:
		}
		if w.Admitted() {
			s.state[name] = "admitted"
		}
	}
	s.q.AllowJoin(true)
}

func (s *script) waiter(name string) *localqueue.Waiter {
	s.names = append(s.names, name)
	s.waiters[name], s.state[name] = localqueue.NewWaiter(modeOf(name), time.Time{}), "waits"
	return s.waiters[name]
}

func (s *script) must(name string, ok bool, state string) {
	if s.state[name] = state; !ok {
		s.state[name] = "refused"
	}
}

func modeOf(name string) localqueue.Mode {
	if name[0] == 'w' {
		return write
	}
	return read
}

// An admitted waiter has the lock: it is too late to give up, whatever it has heard.
func TestAnAdmittedWaiterCannotGiveUp(t *testing.T) {
	var q localqueue.Queue
	q.Enter(write)
	w := localqueue.NewWaiter(write, time.Time{})
	q.Enqueue(w)
	q.Leave(write)
	q.AdmitFirst()
	require.False(t, q.GiveUp(w))
	require.Equal(t, 1, q.Holders())
}

// An unlock without a hold changes nothing.
func TestLeaveWithoutAHold(t *testing.T) {
	for _, mode := range []localqueue.Mode{read, write} {
		var q localqueue.Queue
		held, last := q.Leave(mode)
		require.False(t, held)
		require.False(t, last)
		require.False(t, q.TryLeave())
		require.True(t, q.IsIdle())
	}
}

// Readers join only while their caller allows it, and only while no waiter is ahead of them.
func TestAllowJoin(t *testing.T) {
	var q localqueue.Queue
	q.AllowJoin(true)
	require.False(t, q.TryJoin(), "there are no readers")
	q.Enter(read)
	require.False(t, q.TryJoin(), "not allowed so far")
	q.AllowJoin(true)
	require.True(t, q.TryJoin())
	q.AllowJoin(false)
	require.False(t, q.TryJoin())
	q.Enqueue(localqueue.NewWaiter(write, time.Time{}))
	q.AllowJoin(true)
	require.False(t, q.TryJoin(), "a writer waits")
	require.Equal(t, 2, q.Readers())
	require.True(t, q.TryLeave())
	require.False(t, q.TryLeave(), "the last reader takes the mutex")
}
