package fencing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

// dated is a source with a deadline, as a lease is.
type dated struct {
	fence    fencing.Fence
	deadline time.Time
}

func (d *dated) Fence() fencing.Fence { return d.fence }

func (d *dated) Deadline() time.Time { return d.deadline }

func TestDeadlineIsThatOfTheInnermostSource(t *testing.T) {
	_, ok := fencing.Deadline(t.Context(), "a")
	require.False(t, ok, "no fence")

	lease := &dated{fencing.Fence{Resource: "a", Token: 1, Mode: fencing.Write}, time.Unix(100, 0)}
	ctx := fencing.NewSourceContext(t.Context(), lease)
	lease.deadline = time.Unix(200, 0) // renewed
	got, ok := fencing.Deadline(ctx, "a")
	require.True(t, ok)
	require.Equal(t, time.Unix(200, 0), got)
	_, ok = fencing.Deadline(ctx, "b")
	require.False(t, ok, "a fence of another resource")

	_, ok = fencing.Deadline(fencing.NewContext(ctx, lease.fence), "a")
	require.False(t, ok, "the inner fence has no deadline, and hides the outer one")
}
