package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestDetails(t *testing.T) {
	d := wire.Details{Mode: fencing.Write, HandoffTTL: "3000", Route: wire.Published("c"), Meta: "meta of it"}
	owned, shared, converts, both, none, adopted := d, d, d, d, d, d
	owned.Owner = "A"
	shared.Block, shared.Route = 16, wire.Sharded("c")
	converts.Converts, converts.Mode, converts.Route = "B", fencing.Read, wire.Uncounted("c")
	both.Owner, both.Converts = "A", "B"
	none.Meta, adopted.Route = "", "@C"
	for text, d := range map[string]wire.Details{
		"w 3000 - pc meta of it":   d,
		"w 3000 A pc meta of it":   owned,
		"w 3000 +16 sc meta of it": shared,
		"r 3000 -^B bc meta of it": converts,
		"w 3000 A^B pc meta of it": both,
		"w 3000 - pc ":             none,
		"w 3000 - @C meta of it":   adopted,
	} {
		require.Equal(t, text, d.Text())
		parsed, ok := wire.ParseDetails(text)
		require.True(t, ok, text)
		require.Equal(t, d, parsed)
	}
	require.True(t, converts.Route.IsUncounted())
	require.False(t, shared.Route.IsUncounted() || d.Route.IsUncounted())
}

// The owner of the holder in the way is named, and not what a master has noted behind it.
func TestTheOwnerOfTheHolder(t *testing.T) {
	for owner, shown := range map[string]string{
		"-": other, "-^B": other, "-~": other, "-^B~": other, "+16": other, "+16~": other, "+16^B": other,
		"A": "A", "A^B": "A", "A~": "A", "A^B~": "A",
	} {
		r, err := wire.ReadAcquire(reply(2, 0, 5, us, other, 5, 1000, "w 3000 "+owner+" pchannel meta of it"))
		require.NoError(t, err)
		require.Equal(t, shown, r.Holder.Owner, owner)
		require.Equal(t, "meta of it", r.Holder.Meta)
		require.Equal(t, strings.HasPrefix(owner, "+"), r.Holder.Shared)
	}
}

func FuzzDetails(f *testing.F) {
	f.Add("w 3000 - pc meta of it")
	f.Add("r 3000 +16^B~ sc ")
	f.Add("w 0 A^B bc  x ")
	f.Fuzz(func(t *testing.T, text string) {
		d, ok := wire.ParseDetails(text)
		if !ok {
			return
		}
		again, ok := wire.ParseDetails(d.Text())
		require.True(t, ok)
		require.Equal(t, d, again)
		if d.Block == 0 {
			require.Equal(t, text, d.Text())
		}
	})
}
