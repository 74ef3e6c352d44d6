package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// Tokens go forward though masters lose data one after the other, though a fresh client's clock is behind, and though a
// master's clock is ahead. No clock is ever stepped.

const floorTTL = 2 * time.Second

// history is what happens to three masters and the tokens of one name meanwhile.
type history struct {
	*set
	a     *peer // at work from the beginning
	saves []*testredis.Snapshot
	last  fencing.Token
}

func newHistory(t *testing.T, ahead time.Duration) *history {
	h := &history{set: newSet(t, 3)}
	if ahead != 0 {
		h.minis[2].Skew(ahead)
	}
	h.a = h.process()
	return h
}

func (h *history) process(opts ...rwlock.Option) *peer {
	all := []rwlock.Option{rwlock.WithTTL(floorTTL), redlock.WithNodeTimeout(300 * time.Millisecond)}
	return h.peer(time.Millisecond, append(all, opts...)...)
}

// take takes and gives back the lock. must is whether that has to succeed.
func (h *history) take(p *peer, must bool) {
	h.t.Helper()
	lease, err := p.Lock(soon(h.t, 10*floorTTL), "x")
	if must {
		require.NoError(h.t, err)
	}
	if err != nil {
		return
	}
	require.Greater(h.t, lease.Token(), h.last, "lower by %v", time.Duration(h.last-lease.Token())*time.Microsecond)
	h.last = lease.Token()
	require.NoError(h.t, lease.Release(h.t.Context()))
	time.Sleep(30 * time.Millisecond)
}

// save keeps what every master has at this moment.
func (h *history) save() {
	h.saves = nil
	for _, m := range h.minis {
		h.saves = append(h.saves, m.Snapshot())
	}
}

// loses lets a master come back from its save, or empty, without knowing of it; another name is used until it votes
// again.
func (h *history) loses(master int, everything bool) {
	m := h.minis[master]
	m.Crash()
	if !everything {
		m.Rollback(h.saves[master])
		m.Miniredis().Del("fencelock:master") // miniredis has no run id that would differ
	}
	m.Recover()
	for until := time.Now().Add(4 * floorTTL); time.Now().Before(until); time.Sleep(floorTTL / 10) {
		if lease, err := h.a.Lock(soon(h.t, 10*floorTTL), "y"); err == nil {
			require.NoError(h.t, lease.Release(h.t.Context()))
		}
	}
}

// behind is a process that has seen nothing yet and whose clock is two minutes behind.
func (h *history) behind() *peer { return h.process(clocked(-2*time.Minute, 1)) }

var histories = map[string]func(t *testing.T) *history{
	"one after the other from their saves": func(t *testing.T) *history {
		h := workedOn(t)
		h.loses(0, false)
		h.loses(1, false)
		fresh := h.behind()
		h.minis[2].Stop()
		h.take(fresh, true)
		return h
	},
	"one after the other emptied": func(t *testing.T) *history {
		h := workedOn(t)
		h.loses(0, true)
		h.loses(1, true)
		fresh := h.behind()
		h.minis[2].Stop()
		h.take(fresh, true)
		return h
	},
	"one was out of reach, one lost its data, one fails": func(t *testing.T) *history {
		h := newHistory(t, 0)
		h.take(h.a, true)
		h.save()
		time.Sleep(3 * time.Second)
		h.a.links[2].Refuse()
		h.a.links[2].Cut()
		for range 3 {
			h.take(h.a, true)
		}
		h.a.links[2].Restore()
		h.loses(0, false)
		fresh := h.behind()
		h.minis[1].Stop()
		h.take(fresh, true)
		return h
	},
	"one is a minute ahead, the others are emptied one after the other": func(t *testing.T) *history {
		h := newHistory(t, time.Minute)
		h.take(h.a, true)
		h.minis[0].Freeze()
		for range 3 {
			h.take(h.a, false)
		}
		h.minis[0].Thaw()
		for range 3 {
			h.take(h.a, true)
		}
		h.loses(0, true)
		h.loses(1, true)
		fresh := h.process()
		h.minis[2].Freeze()
		h.take(fresh, true)
		h.minis[2].Thaw()
		return h
	},
}

// workedOn is a history in which tokens were given out after the masters saved.
func workedOn(t *testing.T) *history {
	h := newHistory(t, 0)
	h.take(h.a, true)
	h.save()
	time.Sleep(3 * time.Second)
	for range 3 {
		h.take(h.a, true)
	}
	return h
}

func TestTokensGoForwardOverLostDataWithoutSteppedClocks(t *testing.T) {
	for what, happens := range histories {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := happens(t)
				t.Logf("the last token is %v", h.last)
			})
		})
	}
}

// A master whose clock is a minute ahead pulls no other there. Where a quorum needs it all the same, the error says
// what is wrong with the clocks.
func TestMasterWhoseClockIsAheadPullsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, time.Minute)
		for range 3 {
			h.take(h.a, true)
			require.Less(t, int64(h.last), time.Now().Add(2*time.Second).UnixMicro(), "the others' clocks say less")
		}
		h.minis[0].Stop()
		_, err := h.a.Lock(soon(t, 2*floorTTL), "never taken before")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.ErrorContains(t, err, "clock")
		require.Regexp(t, `mini-[12]:6379: its clock is`, err.Error())
	})
}
