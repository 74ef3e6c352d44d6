package objectguard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// A guard without a bucket says so with every access.
func TestAGuardWithoutABucketIsRefused(t *testing.T) {
	ctx, f := t.Context(), write(7)
	for _, guard := range []*objectguard.Guard{new(objectguard.Guard), objectguard.New(nil)} {
		_, got := guard.Read(ctx, f, "a")
		_, seen := guard.Seen(ctx, "a")
		for name, err := range map[string]error{
			"Read": got, "Seen": seen,
			"Claim":  guard.Claim(ctx, f, "a"),
			"Write":  guard.Write(ctx, f, "a", nil),
			"Update": guard.Update(ctx, f, "a", func(data []byte) ([]byte, error) { return data, nil }),
			"Delete": guard.Delete(ctx, f, "a"),
			"Derive": guard.Derive(ctx, f, "a", nil),
			"Adopt":  guard.Adopt(ctx, f, "a"),
		} {
			require.ErrorContains(t, err, "no bucket", name)
		}
	}
}

// A change that is nil is refused before the object is read.
func TestANilChangeIsRefused(t *testing.T) {
	require.ErrorContains(t, objectguard.New(nil).Update(t.Context(), write(7), "a", nil), "change is nil")
}
