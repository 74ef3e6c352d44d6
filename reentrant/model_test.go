package reentrant_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

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

// step reads an operation: the owner from bit 0, the lock from bit 1, what to do from bits 2 and 3, which hold from
// the rest.
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
