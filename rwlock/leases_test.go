package rwlock_test

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// leases returns what the loop yields: what is held first, then what waits, each in the order of its beginning.
func leases(p *process) []rwlock.LeaseState {
	p.W.Settle()
	return slices.SortedStableFunc(p.Leases(), func(a, b rwlock.LeaseState) int {
		if a.Waiting != b.Waiting {
			return map[bool]int{false: -1, true: 1}[a.Waiting]
		}
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
}

// some is what leases returns, which has to be so many.
func some(p *process, n int) []rwlock.LeaseState {
	p.W.Helper()
	all := leases(p)
	require.Len(p.W, all, n)
	return all
}

func TestLeasesShowWhatIsHeldAndWhatWaits(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		require.Empty(w, leases(p))
		first := p.Take("a", rwlock.Write, rwlock.WithMeta("first"))
		granted := time.Now()
		w.Pass(time.Second)
		second := q.Take("b", rwlock.Read, rwlock.WithMeta("second"))
		waits := time.Now()
		pending := p.Queue("b", rwlock.Write, rwlock.WithMeta("third"))

		all := some(p, 2)
		require.Equal(w, rwlock.LeaseState{
			Name: "a", Mode: rwlock.Write, Owner: first.Owner(), Hold: first.Owner(), Meta: "first", Token: first.Token(),
			Since: granted, Deadline: first.Deadline(), Count: 1,
		}, inWallTime(all[0]))
		behind := all[1].Behind
		require.NotNil(w, behind)
		require.Equal(w, second.Owner(), behind.Hold)
		require.Equal(w, "second", behind.Meta)
		all[1].Behind = nil
		require.Len(w, all[1].Hold, 26)
		require.Equal(w, rwlock.LeaseState{
			Name: "b", Mode: rwlock.Write, Owner: all[1].Hold, Hold: all[1].Hold, Meta: "third", Since: waits, Waiting: true,
		}, inWallTime(all[1]))
		require.Equal(w, []string{"b"}, lockNames(leases(q)))

		w.Release(first, second)
		third := pending.Granted()
		all = some(p, 1)
		require.Equal(w, third.Token(), all[0].Token)
		require.False(w, all[0].Waiting)
		w.Release(third)
		require.Empty(w, leases(p))
	}))
}

// inWallTime leaves the monotonic readings out, which differ where a time was computed.
func inWallTime(s rwlock.LeaseState) rwlock.LeaseState {
	s.Since, s.Deadline = s.Since.Round(0), s.Deadline.Round(0)
	return s
}

func lockNames(all []rwlock.LeaseState) (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

func TestLeasesShowGoroutinesThatShareALock(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		mu := p.RWMutex("n", rwlock.WithLinger(time.Minute), rwlock.WithMeta("here"))
		begun := time.Now()
		succeed(w, mu.RLock, mu.RLock)
		var calls []*testkit.Call
		for range 3 {
			w.Pass(time.Second)
			calls = append(calls, w.Call(w.Ctx, mu.Lock))
		}
		all := some(p, 4)
		require.Equal(w, mu.Token(), all[0].Token)
		require.Equal(w, begun, all[0].Since.Round(0))
		require.Equal(w, 2, all[0].Count)
		require.True(w, all[0].Shared)
		for i, s := range all[1:] {
			require.Equal(w, all[0].Hold, s.Behind.Hold)
			require.Equal(w, 2, s.Behind.Count)
			s.Behind = nil
			require.Equal(w, rwlock.LeaseState{
				Name: "n", Mode: rwlock.Write, Meta: "here", Since: begun.Add(time.Duration(i+1) * time.Second),
				Shared: true, Waiting: true,
			}, s)
		}

		succeed(w, mu.RUnlock, mu.RUnlock)
		for i, c := range calls {
			require.NoError(w, c.Result())
			all = some(p, len(calls)-i)
			require.Equal(w, mu.Token(), all[0].Token)
			require.Equal(w, 1, all[0].Count)
			require.False(w, all[0].Lingering)
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		all = some(p, 1)
		require.True(w, all[0].Lingering)
		require.Zero(w, all[0].Count)
		require.Zero(w, all[0].Token)
		w.Pass(time.Minute)
		require.Empty(w, leases(p))
	}))
}

// The goroutine that asks Redis for all of them comes once, with the time since it came.
func TestLeasesShowTheLeaderOnce(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		held := q.Take("n", rwlock.Write)
		mu := p.RWMutex("n")
		begun := time.Now()
		first := w.Call(w.Ctx, mu.Lock)
		w.Pass(time.Second)
		second := w.Call(w.Ctx, mu.RLock)
		all := some(p, 2)
		require.Equal(w, held.Owner(), all[0].Behind.Hold)
		require.Len(w, all[0].Hold, 26)
		require.Equal(w, begun, all[0].Since.Round(0))
		require.Empty(w, all[1].Hold)
		require.Equal(w, rwlock.Read, all[1].Mode)

		w.Release(held)
		require.NoError(w, first.Result())
		require.Len(w, leases(p), 2)
		// The next leader has waited since it came, and not since it asked.
		w.Pass(time.Second)
		third := q.Queue("n", rwlock.Write)
		w.Settle()
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, second.Result())
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.Release(third.Granted())
	}))
}

func TestLeasesShowConversions(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		one, two := p.Take("n", rwlock.Read), p.Take("n", rwlock.Read)
		upgrade := w.Call(w.Ctx, one.Upgrade)
		converts := some(p, 3)[2]
		require.True(w, converts.Waiting && converts.Converting)
		require.Equal(w, rwlock.Write, converts.Mode)
		require.Zero(w, converts.Token)
		w.Release(two)
		require.NoError(w, upgrade.Result())
		all := some(p, 1)
		require.Equal(w, rwlock.Write, all[0].Mode)
		require.False(w, all[0].Converting)
		w.Release(one)

		for name, enter := range map[string]func(mu *rwlock.RWMutex){
			"the lease is for reading": func(mu *rwlock.RWMutex) { require.NoError(w, mu.RLock(w.Ctx)) },
			"the lease is for writing": func(mu *rwlock.RWMutex) {
				require.NoError(w, mu.Lock(w.Ctx))
				reader := w.Call(w.Ctx, mu.RLock)
				require.NoError(w, mu.Unlock(w.Ctx))
				require.NoError(w, reader.Result())
			},
		} {
			mu := p.RWMutex(name)
			enter(mu)
			require.NoError(w, mu.RLock(w.Ctx))
			c := w.Call(w.Ctx, mu.Upgrade)
			all := some(p, 2)
			require.True(w, all[1].Waiting && all[1].Converting && all[1].Shared, name)
			require.Equal(w, rwlock.Write, all[1].Mode)
			require.NoError(w, mu.RUnlock(w.Ctx))
			require.NoError(w, c.Result())
			require.Len(w, leases(p), 1, name)
			require.NoError(w, mu.Unlock(w.Ctx))
		}
	}))
}

func TestLeasesShowLateRenewals(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		plain := p.Take("without renewal", rwlock.Write, rwlock.WithoutRenewal())
		p.CutOff(0)
		w.Pass(w.TTL * 4 / 10)
		for _, s := range leases(p) {
			require.False(w, s.RenewalLate, s.Name)
			require.NoError(w, s.Err)
		}
		w.Pass(w.TTL * 2 / 10)
		all := leases(p)
		require.Equal(w, []string{"n", "without renewal"}, lockNames(all))
		require.True(w, all[0].RenewalLate)
		require.Error(w, all[0].Err)
		require.Equal(w, lease.Deadline(), all[0].Deadline.Round(0))
		require.False(w, all[1].RenewalLate)
		require.NoError(w, plain.Err())
		waiting := p.Acquire(w.Soon(time.Hour), "unknown", rwlock.Write)
		w.Pass(time.Second)
		require.True(w, leases(p)[2].Unreachable)
		w.UntilOver(lease)
		w.UntilOver(plain)
		require.Equal(w, []string{"unknown"}, lockNames(leases(p)))
		p.Link.Restore()
		waiting.Wait()
	}))
}

func TestLeasesShowALossThatIsNotUnlocked(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		for name, mu := range map[string]*rwlock.RWMutex{
			"lost": p.RWMutex("lost"), "max hold": p.RWMutex("max hold", rwlock.WithMaxHold(time.Second)),
		} {
			require.NoError(w, mu.RLock(w.Ctx))
			require.Equal(w, mu.Token(), leases(p)[0].Token)
			if name == "lost" {
				w.FlushAll()
			} else {
				require.Equal(w, time.Now().Add(time.Second), leases(p)[0].Deadline.Round(0))
			}
			waits := w.Call(w.Ctx, mu.Lock)
			w.Pass(w.TTL)
			all := some(p, 2)
			require.ErrorIs(w, all[0].Err, rwlock.ErrLost, name)
			require.Zero(w, all[0].Deadline)
			require.Equal(w, mu.Token(), all[0].Token)
			require.Equal(w, 1, all[0].Count)
			require.Equal(w, all[0].Hold, all[1].Behind.Hold)
			require.ErrorIs(w, mu.RUnlock(w.Ctx), rwlock.ErrLost)
			require.NoError(w, waits.Result())
			require.NoError(w, leases(p)[0].Err)
			require.NoError(w, mu.Unlock(w.Ctx))
			require.Empty(w, leases(p))
		}
	}))
}

// The body of the loop is the user's code: it may call the locker, even end it, and leave the loop.
func TestNoMutexIsHeldInALoopOverLeases(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		held := takeEach(p, numbered("", 3))
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		waiting := w.Call(w.Ctx, mu.Lock)
		n := 0
		for s := range p.Leases() {
			n++
			p.Section("another " + s.Name)
			require.NotEmpty(w, slices.Collect(p.Leases()))
		}
		require.GreaterOrEqual(w, n, 5)
		for range p.Leases() {
			break
		}
		for s := range p.Leases() {
			if s.Waiting {
				break
			}
		}
		require.Panics(w, func() {
			for range p.Leases() {
				panic("of the body")
			}
		})
		for range p.Leases() { // what has ended in the meantime does not come
			w.Release(held...)
			if mu.Token() != 0 {
				require.NoError(w, mu.Unlock(w.Ctx))
			}
		}
		require.NoError(w, waiting.Result())
		for range p.Leases() {
			require.NoError(w, p.Close())
		}
		require.Empty(w, leases(p))
	}))
}

// A crowd costs the loop no memory.
func TestLoopOverLeasesAllocatesTheSameForMany(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		q.Take("held", rwlock.Write)
		mu := p.RWMutex("shared")
		require.NoError(w, mu.Lock(w.Ctx))
		allocations := func() float64 {
			return testing.AllocsPerRun(5, func() {
				for range p.Leases() {
				}
			})
		}
		p.Take("one", rwlock.Write)
		few := allocations()
		for i := range 200 {
			p.Take(strconv.Itoa(i), rwlock.Write)
			w.Call(w.Ctx, mu.Lock)
		}
		require.Len(w, leases(p), 402)
		if !testkit.RaceDetector {
			require.LessOrEqual(w, allocations(), few+4)
		}
		require.NoError(w, p.Close())
	}))
}

func TestLossesAreTheLastOnes(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const kept = 64
		p := w.Process()
		require.Empty(w, p.Losses())
		lease := p.Take("n", rwlock.Read, rwlock.WithMaxHold(time.Second), rwlock.WithMeta("<here>"))
		w.Pass(2 * time.Second)
		w.Release(p.Take("released", rwlock.Write))
		p.Take("ends as planned", rwlock.Write, rwlock.WithoutRenewal(), rwlock.WithTTL(500*time.Millisecond))
		w.Pass(time.Second)
		all := p.Losses()
		require.Len(w, all, 1)
		loss := all[0]
		require.Equal(w, lease.Err(), error(loss.Err))
		require.Equal(w, rwlock.ReasonMaxHold, loss.Err.Reason)
		require.Equal(w, lease.Owner(), loss.Owner)
		require.Equal(w, lease.Token(), loss.Token)
		require.Equal(w, rwlock.Read, loss.Mode)
		require.Equal(w, "<here>", loss.Meta)
		require.Equal(w, time.Now().Add(-2*time.Second), loss.At.Round(0))
		for i := range kept + 10 {
			p.Take(strconv.Itoa(i), rwlock.Write, rwlock.WithMaxHold(time.Millisecond))
			w.Pass(2 * time.Millisecond)
		}
		all = p.Losses()
		require.Len(w, all, kept)
		for i, loss := range all {
			require.Equal(w, strconv.Itoa(kept+9-i), loss.Name)
		}
		require.True(w, strings.HasPrefix(all[0].Err.Error(), "rwlock: lease of"))
	})
}

// A leader that first gives back a lease of the other mode does not ask Redis for a hold so far.
func TestLeasesShowALeaderThatGivesBackALease(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.WarmUp()
		mu := p.RWMutex("n", rwlock.WithLinger(time.Hour))
		reread(w, mu)
		p.Link.Delay(500 * time.Millisecond)
		begun := time.Now()
		writer := w.Call(w.Ctx, mu.Lock)
		for _, hold := range []int{0, 26} {
			w.Pass(900 * time.Millisecond)
			all := some(p, 1)
			require.True(w, all[0].Waiting)
			require.Len(w, all[0].Hold, hold)
			require.Equal(w, begun, all[0].Since.Round(0))
		}
		require.NoError(w, writer.Result())
		p.Link.Delay(0)
		require.NoError(w, mu.Unlock(w.Ctx))
	}))
}
