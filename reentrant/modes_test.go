package reentrant_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

var combinations = []struct {
	outer, nested rwlock.Mode
	want          error
}{
	{rwlock.Write, rwlock.Write, nil},
	{rwlock.Write, rwlock.Read, nil},
	{rwlock.Read, rwlock.Read, nil},
	{rwlock.Read, rwlock.Write, rwlock.ErrUpgrade}, // in another process; see TestAWriteInsideAReadUpgrades
}

// The nested hold of one process in the outer hold of another.
func TestEveryCombinationOfModesAcrossProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		for _, p := range []*process{first, second} { // each looks at the marker once
			ctx, _ := owned(w)
			require.NoError(w, expect.NoError(p.take(ctx, "warm up", rwlock.Write, false)).In(w).Release(ctx))
		}
		for _, tt := range combinations {
			for _, try := range []bool{false, true} {
				name := fmt.Sprintf("%s in %s, try %t", tt.nested, tt.outer, try)
				ctx, owner := owned(w)
				outer := expect.NoError(first.take(ctx, name, tt.outer, try)).In(w, name)
				there := elsewhere(w, owner)
				sent := scriptsSent(w)

				nested, err := second.take(there, name, tt.nested, try)
				require.ErrorIs(w, err, tt.want, name)
				if tt.want != nil {
					require.ErrorContains(w, err, fmt.Sprintf("%q", name))
					require.Nil(w, nested, name)
					require.Len(w, first.inspect(name).Holders, 1, name)
				} else {
					require.Equal(w, 1, scriptsSent(w)-sent, name)
					require.Equal(w, outer.Token(), nested.Token(), name)
					state := first.inspect(name)
					require.Len(w, state.Holders, 2, name)
					for _, h := range state.Holders {
						require.Equal(w, owner.String(), h.Owner, name)
						require.Equal(w, 2, h.Count, name)
						require.Equal(w, tt.outer, h.Mode, name)
					}
				}
				require.NoError(w, nested.Release(ctx), name)
				require.NoError(w, outer.Lease().Err(), name)
				require.NoError(w, outer.Release(ctx), name)
				require.Empty(w, first.inspect(name).Holders, name)
			}
		}
	})
}

// A hold that has joined another process's read hold stays a reader: an upgrade would wait for that process.
func TestAReaderThatJoinedIsNotUpgraded(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, there := ownedTwice(w)
		outer := must(w)(first.RLock(ctx, "a"))
		joined := must(w)(second.RLock(there, "a"))
		sent := scriptsSent(w)
		soon, cancel := context.WithTimeout(there, time.Second)
		defer cancel()
		for _, try := range []bool{false, true} {
			expect.Fails(w, expect.ErrorOf(second.take(soon, "a", rwlock.Write, try)), rwlock.ErrUpgrade, "by the same owner")
		}
		require.Equal(w, sent, scriptsSent(w), "no command")
		require.NoError(w, joined.Release(there))
		require.NoError(w, outer.Release(ctx))
	})
}

// A write inside one's own read turns the hold into a write hold, for the outer section too, with a larger token.
func TestAWriteInsideAReadUpgrades(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		for name, lock := range map[string]bool{"lock": false, "try": true} {
			ctx, owner := owned(w)
			outer := must(w)(p.RLock(ctx, name))
			section, before := outer.Context(ctx), outer.Token()
			nested := must(w)(p.take(section, name, rwlock.Write, lock))
			require.Equal(w, 2, nested.Depth())
			require.Greater(w, nested.Token(), before)
			require.Equal(w, nested.Token(), outer.Token())
			fence, _ := fencing.FromContext(section, name)
			require.Equal(w, fencing.Fence{Resource: name, Token: nested.Token(), Mode: rwlock.Write}, fence)
			holders := p.inspect(name).Holders
			require.Len(w, holders, 1)
			require.Equal(w, owner.String(), holders[0].Owner)
			require.Equal(w, 1, holders[0].Count)
			require.NoError(w, nested.Release(ctx))
			require.Equal(w, rwlock.Write, p.inspect(name).Mode, "it stays a write hold")
			sent := scriptsSent(w)
			again := must(w)(p.Lock(section, name))
			require.Equal(w, sent, scriptsSent(w), "no command")
			require.NoError(w, again.Release(ctx))
			require.NoError(w, section.Err())
			require.NoError(w, outer.Release(ctx))
			require.Empty(w, p.inspect(name).Holders)
		}
	})
}

// Beside another reader a write inside a read waits, or fails at once where both ask for it.
func TestAnUpgradeOfAnOwnerWaitsForOtherReaders(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		one, _ := owned(w)
		two, _ := owned(w)
		first, second := must(w)(p.RLock(one, "a")), must(w)(p.RLock(two, "a"))
		work := func(context.Context) error { return nil }
		upgrade := w.Call(one, func(ctx context.Context) error { return p.Do(ctx, "a", work) })
		w.UntilWaiting("a", 1)
		require.ErrorIs(w, expect.ErrorOf(p.Lock(two, "a")), rwlock.ErrUpgrade)
		require.NoError(w, second.Release(two))
		require.NoError(w, upgrade.Result())
		require.NoError(w, first.Release(one))
	})
}

// A write inside a read that is at the limit is refused, and the read is as it was.
func TestAnUpgradeThatIsTooDeepIsNotDone(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		p.Locker = reentrant.New(p.remote.Locker, reentrant.WithMaxDepth(1))
		for name, try := range map[string]bool{"lock": false, "try": true} {
			ctx, _ := owned(w)
			outer := must(w)(p.RLock(ctx, name))
			token, sent := outer.Token(), scriptsSent(w)
			require.ErrorIs(w, expect.ErrorOf(p.take(ctx, name, rwlock.Write, try)), reentrant.ErrDepth)
			require.Equal(w, sent, scriptsSent(w), "no command")
			require.Equal(w, token, outer.Token())
			require.Equal(w, rwlock.Read, outer.Lease().Mode())
			require.NoError(w, outer.Release(ctx))
		}
	})
}

const modelDepth = 3

// FuzzNesting runs what owners may do to locks, byte by byte, beside a model of a few lines, and compares.
func FuzzNesting(f *testing.F) {
	f.Add([]byte{0, 4, 8, 12, 12})
	f.Add([]byte{0x00, 0x00, 0x00, 0x00, 0x18, 0x08, 0x08, 0x08})
	f.Add([]byte{0x04, 0x05, 0x00, 0x01, 0x08, 0x01, 0x09, 0x01})
	f.Add([]byte("every byte is an operation, and a sentence has many of them"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		ops = ops[:min(len(ops), 60)]
		inFakeTime(t, func(w *world) {
			p := start(w)
			m := model{w: w, process: p, locker: reentrant.New(p.remote.Locker, reentrant.WithMaxDepth(modelDepth))}
			for range m.sections {
				m.owners = append(m.owners, reentrant.NewOwner())
			}
			for _, op := range ops {
				m.step(op)
			}
		})
	})
}

// model is what two owners have of two locks.
type model struct {
	w        *world
	process  *process
	locker   *reentrant.Locker
	owners   []reentrant.Owner
	sections [2][2]struct { // by owner and lock
		mode  rwlock.Mode
		holds []*reentrant.Hold
	}
}

// step reads an operation: the owner from bit 0, the lock from bit 1, what to do from bits 2 and 3, then which hold.
func (m *model) step(op byte) {
	owner, lock := int(op&1), int(op>>1&1)
	name := fmt.Sprint(lock)
	ctx := reentrant.AsOwner(m.w.Ctx, m.owners[owner])
	s := &m.sections[owner][lock]
	switch what := op >> 2 & 3; what {
	case 0, 1:
		mode := []rwlock.Mode{rwlock.Write, rwlock.Read}[what]
		want := m.expected(owner, lock, mode)
		hold, err := (&process{m.locker, m.process.remote}).take(ctx, name, mode, true)
		require.ErrorIs(m.w, err, want)
		if want != nil {
			return
		}
		if len(s.holds) == 0 {
			s.mode = mode
		}
		s.holds = append(s.holds, hold)
		require.Equal(m.w, len(s.holds), hold.Depth())
		require.Equal(m.w, s.mode, hold.Lease().Mode())
		require.Equal(m.w, s.holds[0].Token(), hold.Token())
	case 2:
		if last := len(s.holds) - 1; last >= 0 {
			require.NoError(m.w, s.holds[last].Release(ctx))
			require.NoError(m.w, s.holds[last].Release(ctx))
			s.holds = s.holds[:last]
		}
	case 3:
		if which := int(op >> 4); which < len(s.holds)-1 {
			require.ErrorIs(m.w, s.holds[which].Release(ctx), reentrant.ErrOrder)
		}
	}
	m.compare(lock, name)
}

func (m *model) expected(owner, lock int, mode rwlock.Mode) error {
	mine, theirs := m.sections[owner][lock], m.sections[1-owner][lock]
	switch {
	case len(mine.holds) > 0 && mine.mode == rwlock.Read && mode == rwlock.Write:
		return rwlock.ErrUpgrade
	case len(mine.holds) == modelDepth:
		return reentrant.ErrDepth
	case len(mine.holds) > 0:
		return nil
	case len(theirs.holds) > 0 && (mode == rwlock.Write || theirs.mode == rwlock.Write):
		return rwlock.ErrNotAcquired
	}
	return nil
}

func (m *model) compare(lock int, name string) {
	var want, got []string
	for owner, id := range m.owners {
		if s := m.sections[owner][lock]; len(s.holds) > 0 {
			require.NoError(m.w, s.holds[0].Lease().Err())
			want = append(want, s.mode.String()+" "+id.String())
		}
	}
	for _, h := range m.process.inspect(name).Holders {
		require.Equal(m.w, 1, h.Count)
		got = append(got, h.Mode.String()+" "+h.Owner)
	}
	require.ElementsMatch(m.w, want, got)
}

func TestReleasesAreLastInFirstOut(t *testing.T) {
	asOwner(t, everywhere, func(w *world, p *process, ctx context.Context) {
		var holds []*reentrant.Hold
		for range 3 {
			holds = append(holds, must(w)(p.Lock(ctx, "a")))
		}
		for i, early := range holds[:2] {
			err := early.Release(ctx)
			require.ErrorIs(w, err, reentrant.ErrOrder)
			require.EqualError(w, err, fmt.Sprintf(`reentrant: hold released out of order: lock "a": it is hold %d of 3`, i+1))
			require.NoError(w, early.Lease().Err())
			require.Len(w, p.inspect("a").Holders, 1)
		}
		sent := scriptsSent(w)
		for _, h := range slices.Backward(holds) {
			require.NoError(w, h.Lease().Err())
			require.NoError(w, h.Release(ctx))
			require.NoError(w, h.Release(ctx), "again")
		}
		require.Equal(w, 1, scriptsSent(w)-sent, "only the last goes to the master")
		require.ErrorIs(w, holds[0].Lease().Err(), rwlock.ErrReleased)
		require.Empty(w, p.inspect("a").Holders)

		require.NoError(w, holds[0].Release(ctx))
		fresh := must(w)(p.Lock(ctx, "a"))
		require.NoError(w, holds[2].Release(ctx), "an old hold is no part of the new section")
		require.NoError(w, fresh.Lease().Err())
		require.NoError(w, fresh.Release(ctx))
	})
}

func TestTheDepthHasALimit(t *testing.T) {
	everywhere(t, func(w *world) {
		remote := start(w).remote
		for name, tt := range map[string]struct {
			locker *reentrant.Locker
			limit  int
		}{
			"by default": {reentrant.New(remote.Locker), 64},
			"one":        {reentrant.New(remote.Locker, reentrant.WithMaxDepth(1)), 1},
			"three":      {reentrant.New(remote.Locker, reentrant.WithMaxDepth(3)), 3},
		} {
			ctx, _ := owned(w)
			var holds []*reentrant.Hold
			for depth := 1; depth <= tt.limit; depth++ {
				h := must(w)(tt.locker.Lock(ctx, name))
				require.Equal(w, depth, h.Depth(), name)
				holds = append(holds, h)
			}
			for range 2 {
				h, err := tt.locker.RLock(ctx, name)
				require.Nil(w, h, name)
				require.ErrorIs(w, err, reentrant.ErrDepth, name)
				require.EqualError(w, err, fmt.Sprintf(
					"reentrant: nested too deep: lock %q is held %d times, the limit of WithMaxDepth", name, tt.limit))
			}
			require.NoError(w, must(w)(tt.locker.Lock(reentrant.Fork(ctx), "another "+name)).Release(ctx))
			require.NoError(w, holds[len(holds)-1].Release(ctx))
			if last := len(holds) - 1; last > 0 {
				again := must(w)(tt.locker.Lock(ctx, name))
				require.Equal(w, tt.limit, again.Depth(), name)
				require.NoError(w, again.Release(ctx))
				for _, h := range slices.Backward(holds[:last]) {
					require.NoError(w, h.Release(ctx))
				}
			}
		}
	})
}

// An owner's first acquisition inside a section of a locker that does not know of it would wait for itself.
func TestAnAcquisitionThatWouldWaitForItselfIsRefused(t *testing.T) {
	asOwner(t, inFakeTime, func(w *world, p *process, ctx context.Context) {
		second := reentrant.New(p.remote.Locker)
		type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) error
		for _, c := range []struct {
			outer, inner doing
			advice       string // whoever nests with package reentrant is not told to
		}{
			{p.remote.Do, p.remote.Do, "; nest with package reentrant"},
			{p.remote.Do, p.Do, "; take that one through package reentrant too"},
			{p.Do, p.remote.RDo, "; take this one through its reentrant.Locker too"},
			{p.Do, second.Do, "; take both through one reentrant.Locker"},
		} {
			err := c.outer(ctx, "a", func(ctx context.Context) error {
				return c.inner(ctx, "a", func(context.Context) error { return nil })
			})
			expect.Fails(w, err, rwlock.ErrNested, "the section that ctx comes from"+c.advice)
		}
		require.Empty(w, p.inspect("a").Holders)
	})
}

// A fork runs beside its parent, so it waits for the parent's section like anybody else; and another process joins it.
func TestAForkWaitsForItsParent(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := start(w), start(w)
		ctx, owner := owned(w)
		entered := make(chan error)
		require.NoError(w, p.Do(ctx, "a", func(ctx context.Context) error {
			fork := reentrant.Fork(context.WithoutCancel(ctx))
			go func() { entered <- p.Do(fork, "a", func(context.Context) error { return nil }) }()
			w.UntilWaiting("a", 1)
			return q.Do(reentrant.AsOwner(ctx, owner), "a", func(context.Context) error { return nil })
		}))
		require.NoError(w, <-entered)
	})
}
