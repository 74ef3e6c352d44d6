package objectguard_test

import (
	"context"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/objectguard"
)

func TestAdopt(t *testing.T) {
	ctx, bucket := t.Context(), newMemory()
	bucket.objects["a"] = []byte("no header\nas it was")
	bucket.attributes["a"] = map[string]string{"Content-Type": "text/plain"}
	guard := objectguard.New(bucket)
	require.ErrorIs(t, guard.Write(ctx, write(5), "a", nil), objectguard.ErrUnguarded)
	require.ErrorIs(t, guard.Adopt(ctx, read(5), "a"), fencing.ErrMissing, "a reader writes nothing")

	require.NoError(t, guard.Adopt(ctx, write(5), "a"))
	data, err := guard.Read(ctx, write(5), "a")
	require.NoError(t, err)
	require.Equal(t, "no header\nas it was", string(data))
	require.ErrorIs(t, guard.Adopt(ctx, write(4), "a"), fencing.ErrStale)

	puts := bucket.puts
	require.NoError(t, guard.Adopt(ctx, write(5), "a"), "again")
	require.Equal(t, puts, bucket.puts)
	require.NoError(t, guard.Adopt(ctx, write(6), "a"), "by the next holder: claimed")
	require.ErrorIs(t, guard.Write(ctx, write(5), "a", nil), fencing.ErrStale)
	other := fencing.Fence{Resource: "orders/43", Token: 9, Mode: fencing.Write}
	require.ErrorIs(t, guard.Adopt(ctx, other, "a"), objectguard.ErrLock)

	require.NoError(t, guard.Adopt(ctx, write(5), "none"))
	_, err = guard.Read(ctx, write(5), "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, guard.Write(ctx, write(4), "none", nil), fencing.ErrStale)
}

// A plain write comes in between: what is adopted is what is there, or nothing would be left of it.
func TestAdoptLosesNoWrite(t *testing.T) {
	bucket := newMemory()
	bucket.objects["a"] = []byte("before")
	overtaken := false
	guard := objectguard.New(hooked{bucket, func(ctx context.Context, key string, o objectguard.Object) error {
		if !overtaken {
			overtaken = true
			bucket.objects[key] = []byte("between")
		}
		return bucket.PutIf(ctx, key, o)
	}})
	require.NoError(t, guard.Adopt(t.Context(), write(5), "a"))
	data, err := guard.Read(t.Context(), write(5), "a")
	require.NoError(t, err)
	require.Equal(t, "between", string(data))
}

// Every kind of write leaves the attributes as they were.
func TestAttributesAreKept(t *testing.T) {
	ctx, bucket := t.Context(), newMemory()
	kept := map[string]string{"Content-Type": "application/json", "owner": "ann"}
	bucket.objects["a"], bucket.attributes["a"] = []byte("{}"), kept
	guard := objectguard.New(bucket)
	for i, access := range []func() error{
		func() error { return guard.Adopt(ctx, write(1), "a") },
		func() error { return guard.Claim(ctx, read(2), "a") },
		func() error { return guard.Write(ctx, write(3), "a", []byte("x")) },
		func() error { return guard.Derive(ctx, read(3), "a", []byte("y")) },
		func() error { return guard.Delete(ctx, write(4), "a") },
		func() error { return guard.Write(ctx, write(4), "a", []byte("z")) },
	} {
		require.NoError(t, access())
		require.Equal(t, i+1, bucket.puts)
		require.Equal(t, kept, bucket.attributes["a"])
	}
}
