package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/engine"
)

// The owner of who is in the way is named whatever the server has noted behind it.
func TestTheOwnerOfTheHolderIsNamed(t *testing.T) {
	for owner, shown := range map[string]string{
		"-": "hold", "-^other": "hold", "-~": "hold", "-^other~": "hold", "+16": "hold", "+16~": "hold",
		"A": "A", "A^other": "A", "A~": "A", "A^other~": "A",
	} {
		holder := engine.ReadHolder("w 3000 "+owner+" pchannel meta of it", "hold")
		require.Equal(t, shown, holder.Owner, owner)
		require.Equal(t, "meta of it", holder.Meta)
	}
	require.Nil(t, engine.ReadHolder("w 3000", "hold"), "of a later version, perhaps")
}
