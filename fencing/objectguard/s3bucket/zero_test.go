package s3bucket_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/fencing/objectguard/s3bucket"
)

// A bucket without a client or a name says so, and a guard of it stores nothing and does not try again.
func TestABucketWithoutClientOrNameIsRefused(t *testing.T) {
	const says = "no client or no name"
	for _, bucket := range []*s3bucket.Bucket{
		new(s3bucket.Bucket), s3bucket.New(nil, bucket), s3bucket.New(s3.New(s3.Options{}), ""),
	} {
		_, err := bucket.Get(t.Context(), "a")
		require.ErrorContains(t, err, says)
		err = bucket.PutIf(t.Context(), "a", objectguard.Object{})
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, err, objectguard.ErrRefused)
		require.ErrorContains(t, bucket.Probe(t.Context(), "probe/"), says)
		require.ErrorContains(t, objectguard.New(bucket).Write(t.Context(), write(1), "a", nil), says)
	}
}
