package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// inSkewedTime runs a test over masters whose clocks differ.
func inSkewedTime(t *testing.T, skews []time.Duration, test func(w *world)) {
	inFakeTime(t, len(skews), func(w *world) {
		for i, m := range w.Minis {
			m.Skew(skews[i])
		}
		test(w)
	})
}

func runInSkewedTime(t *testing.T, name string, skews []time.Duration, test func(w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inSkewedTime(t, skews, test) })
}

// tries takes and gives back each of n locks, with one attempt, and returns how often that worked.
func tries(p *process, name string, n int) (acquired int, last error) {
	for i := range n {
		lease, err := p.TryLock(p.W.Ctx, fmt.Sprint(name, i))
		if err != nil {
			last = err
			continue
		}
		acquired++
		p.W.Release(lease)
		time.Sleep(time.Millisecond)
	}
	return acquired, last
}

// A client proposes tokens by what the masters' clocks show, whatever its own does, and nothing has to be raised.
func TestAClientWhoseClockIsOff(t *testing.T) {
	for _, lead := range []time.Duration{0, 2 * time.Second, -2 * time.Second, time.Hour, -time.Hour} {
		t.Run(lead.String(), func(t *testing.T) {
			inSkewedTime(t, []time.Duration{-10 * time.Millisecond, 0, 10 * time.Millisecond}, func(w *world) {
				good, off := w.Process(), w.Process(ahead(lead))
				sent := w.Requests()
				for range 2 { // the second time each finds what the other has counted
					for _, p := range []*process{off, good} {
						acquired, err := tries(p, "n", 5)
						require.Equal(w, 5, acquired, "%v", err)
					}
				}
				require.Zero(w, sent.Counts()[scripts.Raise])
			})
		})
	}
}

// Where masters' clocks differ by more than tokens may be ahead, those close to each other agree, in any order.
func TestMastersWhoseClocksAreFarApart(t *testing.T) {
	const second = time.Second
	for _, skews := range [][]time.Duration{
		{-3 * second / 2, 0, 10 * time.Millisecond},
		{0, 3 * second / 2, -10 * time.Millisecond},
		{0, time.Minute, 0},
		{-time.Minute, 900 * time.Millisecond, 0},
		{-20 * second, -20 * second, 0, second / 2, second / 4},
		{20 * second, 0, -20 * second, second / 2, second / 4},
		{0, 700 * time.Millisecond, time.Minute},
		{990 * time.Millisecond, 0, time.Minute},
		{0, 990 * time.Millisecond, -time.Minute},
		{0, 400 * time.Millisecond, 990 * time.Millisecond, time.Minute, time.Hour},
	} {
		for first := 0; first < len(skews); first += testredis.Few(3, 1) {
			runInSkewedTime(t, fmt.Sprintf("%v, %d answers first", skews, first), skews, func(w *world) {
				p := w.ProcessAt(3 * time.Millisecond)
				p.Links[first].Delay(time.Millisecond)
				rounds := testredis.Few(3, 40)
				acquired, err := tries(p, "n", rounds)
				require.Equal(w, rounds, acquired, "%v", err)
			})
		}
	}
}

// A lock that is new begins on every master whose clock is close enough to the others, not on a quorum alone.
func TestMastersWhoseClocksDifferALittle(t *testing.T) {
	for _, skews := range [][]time.Duration{
		{0, 0, 500 * time.Millisecond},
		{0, 0, -500 * time.Millisecond},
		{0, 700 * time.Millisecond, 400 * time.Millisecond},
		{0, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, 650 * time.Millisecond},
	} {
		runInSkewedTime(t, fmt.Sprint(skews), skews, func(w *world) {
			p := warmed(w.ProcessAt(time.Millisecond))
			for i := range 5 {
				name := fmt.Sprint("n", i)
				lease := p.Take(name, rwlock.Write)
				w.Pass(time.Second)
				for j, m := range w.Inspect(name).Masters {
					require.Equal(w, lease.Token(), m.Token, "%s on master %d", name, j)
				}
				w.Release(lease)
			}
		})
	}
}

// When there is only a quorum left, and its clocks are more than a second apart, a lock that was used before is to be
// had as soon as the clock behind has come within a second of its token. One without a counter is not to be had at the
// first attempt: the master ahead mints no less than its clock, since it cannot know what it has forgotten, and the one
// behind does not follow so far ahead of its own.
func TestAQuorumWhoseClocksAreFarApart(t *testing.T) {
	const apart = 1500 * time.Millisecond
	for name, skews := range map[string][]time.Duration{"behind": {-apart, 0, 0}, "ahead": {apart, 0, 0}} {
		runInSkewedTime(t, name, skews, func(w *world) {
			p := w.Process(rwlock.WithTTL(20*time.Second), redlock.WithNodeTimeout(50*time.Millisecond))
			acquired, err := tries(p, "used", 10)
			require.Equal(w, 10, acquired, "%v", err)
			w.Minis[2].Crash()
			time.Sleep(apart)
			acquired, err = tries(p, "used", 10)
			require.Equal(w, 10, acquired, "%v", err)

			acquired, err = tries(p, "new", 10)
			require.Zero(w, acquired)
			expect.Fails(w, err, rwlock.ErrNoQuorum, "clock")
			w.Release(p.Acquire(w.Soon(apart), "newer", rwlock.Write).Granted())
			time.Sleep(apart)
			acquired, err = tries(p, "new", 10)
			require.Equal(w, 10, acquired, "%v", err)
		})
	}
}

// majorities yields every majority of five masters, as a bit set: of three, of four and of all.
func majorities(yield func(masters int)) {
	for set := range 1 << 5 {
		count := 0
		for i := range 5 {
			count += set >> i & 1
		}
		if count >= 3 {
			yield(set)
		}
	}
}

// increase takes and gives back one lock again and again, each time by a locker drawn at random, and checks that each
// token is greater than all before it.
func increase(t testing.TB, lockers []*rwlock.Locker, rounds int, settle func()) {
	require.Len(t, lockers, 10+5+1)
	rng := rand.New(rand.NewPCG(5, 0))
	var last fencing.Token
	begun := time.Now()
	for i := range rounds {
		lease := expect.NoError(lockers[rng.IntN(len(lockers))].Lock(t.Context(), "x")).In(t)
		require.Greater(t, lease.Token(), last, "acquisition %d", i)
		last = lease.Token()
		require.NoError(t, lease.Release(t.Context()))
		settle()
	}
	t.Logf("%d acquisitions in %v", rounds, time.Since(begun))
}

// Whatever majority an acquisition reaches, its token is greater than all before it, though time stands still.
func TestTokensIncreaseOverChangingMajorities(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		var lockers []*rwlock.Locker
		majorities(func(masters int) {
			p := warmed(w.ProcessAt(0))
			synctest.Wait()
			for i := range p.Links {
				if masters>>i&1 == 0 {
					p.CutOff(i)
				}
			}
			lockers = append(lockers, p.Locker)
		})
		increase(w, lockers, testredis.Few(30, 500), synctest.Wait)
	})
}

// How far proposals and blocks run ahead of the masters' clocks, and what blocks have at the least.
const (
	proposalLead = 50 * time.Millisecond
	blockLead    = 800 * time.Millisecond
	blockMin     = 16
)

// Blocks are as large as ever where the clocks of the processes are not the masters'.
func TestBlocksWhereClocksDiffer(t *testing.T) {
	eachInFakeTime(t, 3, map[string]struct{ own, others time.Duration }{
		"its own is behind":       {own: -time.Hour},
		"its own is ahead":        {own: 600 * time.Millisecond},
		"another's is ahead":      {others: 600 * time.Millisecond},
		"one behind, one ahead":   {own: -600 * time.Millisecond, others: 600 * time.Millisecond},
		"another's is far ahead":  {others: time.Hour},
		"both are in time":        {},
		"another's is far behind": {others: -time.Hour},
	}, func(w *world, c struct{ own, others time.Duration }) {
		skew, sections := 20*time.Millisecond, 1000
		if c.others > blockLead { // as far ahead as the masters let it be, each by its own clock
			skew, sections = 0, blockMin-2 // one is left for a reader that upgrades
		}
		for i, m := range w.Minis {
			m.Skew(time.Duration(i) * skew)
		}
		p, q := w.Process(ahead(c.own)), w.Process(ahead(c.others))
		sent := w.Requests()
		p.Section("warm-up")
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
		for _, locker := range []*process{q, p} { // p sees where q's token is
			w.Release(expect.NoError(locker.Lock(w.Ctx, "n")).In(w))
		}
		require.NoError(w, mu.Lock(w.Ctx))
		require.NoError(w, mu.Unlock(w.Ctx))
		before := sent.Counts()
		for range sections - 1 {
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		require.Equal(w, before, sent.Counts(), "no command")
	})
}

// What the blocks of one lock use up leaves room for those of others.
func TestBlocksOfOneLockLeaveRoomForOthers(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessAt(0) // nothing takes time, so the clock does not catch up
		sent := w.Requests()
		p.Section("warm-up")
		busy, other := p.RWMutex("busy", rwlock.WithLinger(time.Hour)), p.RWMutex("other", rwlock.WithLinger(time.Hour))
		for range (blockLead-proposalLead)/time.Microsecond + 100*blockMin { // as far ahead as it may be, and beyond
			if err := errors.Join(busy.Lock(w.Ctx), busy.Unlock(w.Ctx)); err != nil {
				w.Fatal(err)
			}
		}
		require.NoError(w, other.Lock(w.Ctx))
		require.NoError(w, other.Unlock(w.Ctx))
		before := sent.Counts()
		for range 1000 {
			require.NoError(w, other.Lock(w.Ctx))
			require.NoError(w, other.Unlock(w.Ctx))
		}
		require.Equal(w, before, sent.Counts(), "no command")
	})
}

// A master that has missed the grants of late is proposed a token beyond them, by whoever has seen it: by the holder
// that converts what it has, and by the one whose release lets the next in. So it agrees with the others at once.
func TestWhoHasHeldALockProposesATokenBeyondItsOwn(t *testing.T) {
	eachInFakeTime(t, 3, map[string]func(t *testing.T, mu, other *rwlock.RWMutex, forget func()){
		"downgrade": func(t *testing.T, mu, _ *rwlock.RWMutex, forget func()) {
			forget()
			require.NoError(t, mu.Downgrade(t.Context()))
		},
		"release": func(t *testing.T, mu, other *rwlock.RWMutex, forget func()) {
			entered := make(chan error, 1)
			go func() { entered <- other.Lock(t.Context()) }()
			synctest.Wait()
			forget()
			require.NoError(t, mu.Unlock(t.Context()))
			require.NoError(t, <-entered)
		},
	}, func(w *world, grant func(t *testing.T, mu, other *rwlock.RWMutex, forget func())) {
		p, q := w.ProcessAt(0), w.ProcessAt(0)
		sent := w.Requests()
		warmUp(p, q)
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		before := sent.Counts() // when all masters have granted it
		older := strconv.FormatUint(uint64(mu.Token())-1, 10)
		first := w.Minis[0].Miniredis()
		grant(w.T, mu, q.RWMutex("n"), func() {
			first.HSet("fencelock:{n}", "w", testkit.CounterIn(first.HGet("fencelock:{n}", "w"), older))
		})
		require.Equal(w, before[scripts.Raise], sent.Counts()[scripts.Raise], "it was not raised")
	})
}

// Tokens go forward though masters lose data one after the other and clocks differ. No clock is ever stepped.

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

// loses lets a master come back from its save, or empty, without knowing; another name is used until it votes again.
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
	eachInFakeTime(t, 3, histories, func(w *world, happens func(h *history)) {
		h := newHistory(w)
		happens(h)
		w.Logf("the last token is %v", h.last)
	})
}

// A master whose clock is a minute ahead pulls no other there. Where a quorum needs it, the error names the clocks.
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
		expect.Fails(t, err, rwlock.ErrNoQuorum, "clock")
		require.Regexp(t, `mini-[12]:6379: its clock is`, err.Error())
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

// A client whose clock is ahead waits no longer among others than they do, and one whose clock is behind does not pass
// all of them, even with its first lock.
func TestAClientWhoseClockIsOffWaitsAsLongAsOthers(t *testing.T) {
	skews := []time.Duration{0, 10 * time.Millisecond, 0}
	for _, skew := range []time.Duration{0, time.Second, time.Hour, -time.Second, -time.Hour} {
		runInSkewedTime(t, skew.String(), skews, func(w *world) {
			p := warm(w)
			held := p.Take("x", rwlock.Write)
			before, off, after := w.Process(), w.Process(ahead(skew)), w.Process()
			var order []int
			var queue []*testkit.Pending
			for i, q := range []*process{before, off, after} {
				queue = append(queue, q.LineUp("x", rwlock.Write, func(*rwlock.Lease) { order = append(order, i) }))
				w.Pass(200 * time.Millisecond)
			}
			w.Release(held)
			for _, one := range queue {
				<-one.Over
			}
			require.Equal(w, []int{0, 1, 2}, order)
		})
	}
}

// A master whose clock was once ahead by a month is right again, and has counted that far. The next lease sets its
// counter back, so that it agrees with the only other master that is left. A lease that is given back after the answer
// of all masters does so by its release.
func TestACounterAheadOfItsClockGoesBack(t *testing.T) {
	for name, c := range map[string]struct {
		mode rwlock.Mode
		work time.Duration
	}{
		"a write that is over":    {rwlock.Write, 0},
		"a short write":           {rwlock.Write, 20 * time.Millisecond},
		"a write that is renewed": {rwlock.Write, 10 * time.Second},
	} {
		runInFakeTime(t, name, 3, func(w *world) {
			p, q := warm(w), warm(w)
			w.Minis[1].Skew(30 * 24 * time.Hour)
			w.Pass(time.Second)
			p.Section("x")
			w.Minis[1].Skew(0)
			w.Pass(time.Minute)
			p.Section("other") // its clock is known again
			lease := q.Take("x", c.mode)
			if w.Settle(); c.work > 0 {
				w.Pass(c.work)
				require.True(w, standsEverywhere(w, lease))
			}
			w.Release(lease)
			w.Minis[0].Stop()
			w.Pass(10 * time.Second)
			within, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
			defer cancel()
			next := expect.NoError(p.Lock(within, "x")).In(w)
			require.Greater(w, next.Token(), lease.Token())
			w.Release(next)
		})
	}
}

// A master that does not take its grant back is asked at the regular renewals, and not again and again.
func TestACounterThatStaysAheadIsNoReasonToRenew(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := warm(w), warm(w)
		w.Mini.Skew(30 * 24 * time.Hour)
		w.Pass(time.Second)
		p.Section("x")
		w.Mini.Skew(0)
		w.Pass(time.Minute)
		q.Section("other") // its clock is known again
		sent := w.Requests(q)
		q.Link.Delay(20 * time.Millisecond)
		lease := q.Take("x", rwlock.Write) // by the other two
		w.Pass(30 * time.Millisecond)      // it has granted it, and a hold joins it there
		redis, joined, expiry := w.Mini.Miniredis(), strings.Repeat("0", 26), time.Now().Add(time.Hour).UnixMilli()
		redis.HSet("fencelock:{x}", "n", "1 0 0", joined, fmt.Sprint("g ", expiry, " 1 0 w 3000 - - "))
		expect.NoError(redis.ZAdd("fencelock:{x}:h", float64(expiry), joined)).In(w)
		w.Pass(w.TTL)
		require.Positive(w, sent.Of(scripts.Regain))
		require.Less(w, sent.Of(scripts.Regain), 6)
		w.Release(lease)
	})
}

// Until then the error names the master whose counter is ahead, and what sets it back.
func TestTheErrorNamesACounterAheadOfItsClock(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := warm(w)
		w.Minis[1].Skew(30 * 24 * time.Hour)
		w.Pass(time.Second)
		p.Section("x")
		w.Minis[1].Skew(0)
		w.Minis[0].Stop()
		w.Pass(time.Minute)
		p.Section("other") // its clock is known again
		within, cancel := context.WithTimeout(w.Ctx, 20*time.Second)
		defer cancel()
		_, err := p.Lock(within, "x")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.ErrorContains(w, err, "mini-1:6379: its counter for this lock is 719h")
		require.ErrorContains(w, err, "the next lease for writing that a quorum of the other masters grants sets it back")
	})
}
