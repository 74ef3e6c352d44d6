package main

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/rwlock"
)

// answers calls a function with each answer that a worker records, before the worker goes on.
type answers func(a *history.Answer)

func (f answers) Write(line []byte) (int, error) {
	var e history.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return 0, err
	}
	f(e.Answer)
	return len(line), nil
}

// A ticket that no quorum adopts leaves its lock taken, and the next probe of that name expects a free one.
func TestProbeOfATicketLeavesAFreeLock(t *testing.T) {
	testkit.InFakeTime(t, 3, func(w *testkit.World) {
		p, masters, adopted := w.Process(), testkit.Span(0, 3), ""
		probe := &probe{client: &client{w: &worker{}, locker: p.Locker, rng: rand.New(rand.NewPCG(1, 1))}}
		probe.w.cfg.TTL = w.TTL
		probe.w.out = bufio.NewWriter(answers(func(a *history.Answer) {
			switch a.Call {
			case "Detach":
				p.CutOff(masters...)
			case "Adopt of a new ticket":
				adopted = a.Got
				p.Restore(masters...)
			}
		}))
		probe.ticket()
		require.Equal(t, "no quorum", adopted)
		_, err := p.Try(probe.name("a"), rwlock.Write)
		require.NoError(t, err)
	})
}
