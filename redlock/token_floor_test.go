package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// Tokens go forward though masters lose data one after the other, though a fresh client's clock is behind, and though a
// master's clock is ahead. No clock is ever stepped.

const floorTTL = 2 * time.Second

// history is what happens to three masters and the tokens of one name meanwhile.
type history struct {
	*world
	a     *process // at work from the beginning
	saves []*testredis.Snapshot
	last  fencing.Token
}

func newHistory(w *world) *history {
	h := &history{world: w}
	h.a = h.start()
	return h
}

func (h *history) start(opts ...rwlock.Option) *process {
	all := []rwlock.Option{rwlock.WithTTL(floorTTL), redlock.WithNodeTimeout(300 * time.Millisecond)}
	return h.Process(append(all, opts...)...)
}

// take takes and gives back the lock. must is whether that has to succeed.
func (h *history) take(p *process, must bool) {
	h.Helper()
	lease, err := p.Lock(h.Soon(10*floorTTL), "x")
	if must {
		require.NoError(h, err)
	}
	if err != nil {
		return
	}
	require.Greater(h, lease.Token(), h.last, "lower by %v", time.Duration(h.last-lease.Token())*time.Microsecond)
	h.last = lease.Token()
	require.NoError(h, lease.Release(h.Ctx))
	time.Sleep(30 * time.Millisecond)
}

// save keeps what every master has at this moment.
func (h *history) save() {
	h.saves = nil
	for _, m := range h.Minis {
		h.saves = append(h.saves, m.Snapshot())
	}
}

// loses lets a master come back from its save, or empty, without knowing of it; another name is used until it votes
// again.
func (h *history) loses(master int, everything bool) {
	m := h.Minis[master]
	m.Crash()
	if !everything {
		m.Rollback(h.saves[master])
		m.Miniredis().Del("fencelock:master") // miniredis has no run id that would differ
	}
	m.Recover()
	for until := time.Now().Add(4 * floorTTL); time.Now().Before(until); time.Sleep(floorTTL / 10) {
		if lease, err := h.a.Lock(h.Soon(10*floorTTL), "y"); err == nil {
			require.NoError(h, lease.Release(h.Ctx))
		}
	}
}

// behind is a process that has seen nothing yet and whose clock is two minutes behind.
func (h *history) behind() *process { return h.start(ahead(-2 * time.Minute)) }

var histories = map[string]func(h *history){
	"one after the other from their saves": func(h *history) {
		h.workOn()
		h.loses(0, false)
		h.loses(1, false)
		fresh := h.behind()
		h.Minis[2].Stop()
		h.take(fresh, true)
	},
	"one after the other emptied": func(h *history) {
		h.workOn()
		h.loses(0, true)
		h.loses(1, true)
		fresh := h.behind()
		h.Minis[2].Stop()
		h.take(fresh, true)
	},
	"one was out of reach, one lost its data, one fails": func(h *history) {
		h.take(h.a, true)
		h.save()
		time.Sleep(3 * time.Second)
		h.a.CutOff(2)
		for range 3 {
			h.take(h.a, true)
		}
		h.a.Restore(2)
		h.loses(0, false)
		fresh := h.behind()
		h.Minis[1].Stop()
		h.take(fresh, true)
	},
	"one is a minute ahead, the others are emptied one after the other": func(h *history) {
		h.Minis[2].Skew(time.Minute)
		h.take(h.a, true)
		h.Minis[0].Freeze()
		for range 3 {
			h.take(h.a, false)
		}
		h.Minis[0].Thaw()
		for range 3 {
			h.take(h.a, true)
		}
		h.loses(0, true)
		h.loses(1, true)
		fresh := h.start()
		h.Minis[2].Freeze()
		h.take(fresh, true)
		h.Minis[2].Thaw()
	},
}

// workOn gives tokens out after the masters have saved.
func (h *history) workOn() {
	h.take(h.a, true)
	h.save()
	time.Sleep(3 * time.Second)
	for range 3 {
		h.take(h.a, true)
	}
}

func TestTokensGoForwardOverLostDataWithoutSteppedClocks(t *testing.T) {
	for what, happens := range histories {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				h := newHistory(w)
				happens(h)
				t.Logf("the last token is %v", h.last)
			})
		})
	}
}

// A master whose clock is a minute ahead pulls no other there. Where a quorum needs it all the same, the error says
// what is wrong with the clocks.
func TestMasterWhoseClockIsAheadPullsNobody(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		w.Minis[2].Skew(time.Minute)
		h := newHistory(w)
		for range 3 {
			h.take(h.a, true)
			require.Less(t, int64(h.last), time.Now().Add(2*time.Second).UnixMicro(), "the others' clocks say less")
		}
		h.Minis[0].Stop()
		_, err := h.a.Lock(w.Soon(2*floorTTL), "never taken before")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.ErrorContains(t, err, "clock")
		require.Regexp(t, `mini-[12]:6379: its clock is`, err.Error())
	})
}

// The error names the clocks also if the context ends while a further attempt waits for the release of the attempt that
// the masters refused: no other client has the lock.
func TestMastersThatRefuseForTheirClocksAreNamedAfterAFurtherAttempt(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		w.Minis[2].Skew(time.Minute)
		h := newHistory(w)
		h.take(h.a, true)
		h.Minis[0].Stop()
		release := h.Running(scripts.Release)
		for _, link := range h.a.Links {
			link.Deny(func(cmd []string) string {
				if release(cmd) {
					return "BUSY not now"
				}
				return ""
			})
		}
		for i := range 20 {
			_, err := h.a.Lock(h.Soon(time.Duration(10+7*i)*time.Millisecond), fmt.Sprint("never taken before ", i))
			require.ErrorIs(h, err, context.DeadlineExceeded)
			require.ErrorIs(h, err, rwlock.ErrNoQuorum)
			require.NotErrorIs(h, err, rwlock.ErrNotAcquired)
			require.Regexp(h, `mini-[12]:6379: its clock is`, err.Error())
		}
	})
}

// The clocks of all masters go back by an hour. The tokens of a lock that was used before are an hour ahead of them
// from then on, but proposals for other locks are not, so that all masters mint the same token for these.
func TestTokensOfOneLockDoNotLeadTheProposalsForOthers(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		for _, mini := range w.Minis {
			mini.Skew(time.Hour)
		}
		p := w.Process()
		p.Section("old")
		for i, mini := range w.Minis {
			mini.Skew(time.Duration(i) * 10 * time.Millisecond)
		}
		p.Section("old")
		p.Section("old") // it knows the clocks of now
		sent := w.Requests()
		for i := range 10 {
			p.Section(fmt.Sprint("new ", i))
		}
		require.Zero(w, sent.Of(scripts.Raise))
	})
}
