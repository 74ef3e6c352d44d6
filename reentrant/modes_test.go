package reentrant_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

var combinations = []struct {
	outer, nested rwlock.Mode
	want          error
}{
	{rwlock.Write, rwlock.Write, nil},
	{rwlock.Write, rwlock.Read, nil},
	{rwlock.Read, rwlock.Read, nil},
	{rwlock.Read, rwlock.Write, rwlock.ErrUpgrade}, // in another process; see upgrade_test.go
}

func TestEveryCombinationOfModesInOneProcess(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		for _, tt := range combinations[:3] {
			for _, try := range []bool{false, true} {
				name := fmt.Sprintf("%s in %s, try %t", tt.nested, tt.outer, try)
				ctx, owner := owned(t)
				outer, err := p.take(ctx, name, tt.outer, try)
				require.NoError(t, err, name)
				sent := w.scripts()

				nested, err := p.take(ctx, name, tt.nested, try)
				require.ErrorIs(t, err, tt.want, name)
				require.Equal(t, sent, w.scripts(), "%s: no command", name)
				state := p.inspect(t, name)
				require.Len(t, state.Holders, 1, name)
				require.Equal(t, owner.String(), state.Holders[0].Owner, name)
				require.Equal(t, 1, state.Holders[0].Count, "%s: nesting in a process is not the master's business", name)
				require.Equal(t, tt.outer, state.Mode, name)
				if tt.want != nil {
					require.ErrorContains(t, err, fmt.Sprintf("%q", name))
					require.Nil(t, nested, name)
				} else {
					require.Equal(t, 2, nested.Depth(), name)
					require.Equal(t, outer.Token(), nested.Token(), name)
					require.Same(t, outer.Lease(), nested.Lease(), name)
					require.Equal(t, tt.outer, nested.Lease().Mode(), name)
				}
				require.NoError(t, nested.Release(ctx), "%s: also of the nil hold of a refused one", name)
				require.NoError(t, outer.Lease().Err(), name)
				require.NoError(t, outer.Release(ctx), name)
				require.Empty(t, p.inspect(t, name).Holders, name)
			}
		}
	})
}

// The nested hold of one process in the outer hold of another.
func TestEveryCombinationOfModesAcrossProcesses(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		first, second := w.process(), w.process()
		for _, p := range []*process{first, second} { // each looks at the marker once
			ctx, _ := owned(t)
			hold, err := p.take(ctx, "warm up", rwlock.Write, false)
			require.NoError(t, err)
			require.NoError(t, hold.Release(ctx))
		}
		for _, tt := range combinations {
			for _, try := range []bool{false, true} {
				name := fmt.Sprintf("%s in %s, try %t", tt.nested, tt.outer, try)
				ctx, owner := owned(t)
				outer, err := first.take(ctx, name, tt.outer, try)
				require.NoError(t, err, name)
				there := elsewhere(t, owner)
				sent := w.scripts()

				nested, err := second.take(there, name, tt.nested, try)
				require.ErrorIs(t, err, tt.want, name)
				if tt.want != nil {
					require.ErrorContains(t, err, fmt.Sprintf("%q", name))
					require.Nil(t, nested, name)
					require.Len(t, first.inspect(t, name).Holders, 1, name)
				} else {
					require.Equal(t, 1, w.scripts()-sent, name)
					require.Equal(t, outer.Token(), nested.Token(), name)
					state := first.inspect(t, name)
					require.Len(t, state.Holders, 2, name)
					for _, h := range state.Holders {
						require.Equal(t, owner.String(), h.Owner, name)
						require.Equal(t, 2, h.Count, name)
						require.Equal(t, tt.outer, h.Mode, name)
					}
				}
				require.NoError(t, nested.Release(ctx), name)
				require.NoError(t, outer.Lease().Err(), name)
				require.NoError(t, outer.Release(ctx), name)
				require.Empty(t, first.inspect(t, name).Holders, name)
			}
		}
	})
}

func TestOwnersAreStrangersToEachOther(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		one, _ := owned(t)
		other, _ := owned(t)
		for _, tt := range []struct {
			held, wanted rwlock.Mode
			want         error
		}{
			{rwlock.Write, rwlock.Write, rwlock.ErrNotAcquired},
			{rwlock.Write, rwlock.Read, rwlock.ErrNotAcquired},
			{rwlock.Read, rwlock.Write, rwlock.ErrNotAcquired},
			{rwlock.Read, rwlock.Read, nil},
		} {
			name := fmt.Sprintf("%s beside %s", tt.wanted, tt.held)
			held := must(t)(p.take(one, name, tt.held, false))
			hold, err := p.take(other, name, tt.wanted, true)
			require.ErrorIs(t, err, tt.want, name)
			if err == nil {
				require.Equal(t, 1, hold.Depth(), name)
				require.NotEqual(t, held.Token(), hold.Token(), name)
			}
			require.NoError(t, hold.Release(other), name)
			require.NoError(t, held.Release(one), name)
		}
	})
}
