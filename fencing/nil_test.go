package fencing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

// A nil access is refused before it raises a register.
func TestANilAccessRaisesNothing(t *testing.T) {
	var guard fencing.Watermark
	f := fencing.Fence{Resource: "orders/42", Token: 7, Mode: fencing.Write}
	require.ErrorContains(t, guard.Do(t.Context(), f, nil), `"orders/42"`)
	require.ErrorContains(t, guard.Derive(t.Context(), f, nil), `"orders/42"`)
	maxRead, maxWrite := guard.Seen("orders/42")
	require.Zero(t, maxRead)
	require.Zero(t, maxWrite)
}

// A nil option is the mistake of whoever runs the service, and never of the one who called it.
func TestExtractRefusesANilOption(t *testing.T) {
	carrier := fencing.MapCarrier{}
	carrier.Add(fencing.HeaderName, fencing.FormatHeader(fencing.Fence{Resource: "a", Token: 1, Mode: fencing.Read}))
	ctx, err := fencing.Extract(t.Context(), carrier, nil)
	require.ErrorContains(t, err, "option")
	require.NotErrorIs(t, err, fencing.ErrMalformed)
	require.Equal(t, t.Context(), ctx)
}
