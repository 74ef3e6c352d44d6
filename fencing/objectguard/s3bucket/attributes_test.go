package s3bucket_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// An object that was there before, with all that belongs to it.
func TestAdoptedObjectKeepsItsAttributes(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *front, client *s3.Client, guard *objectguard.Guard) {
		keepHeaders(f)
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String("a"), Body: strings.NewReader("as it was"),
			ContentType: aws.String("image/png"), ContentEncoding: aws.String("br"), ContentLanguage: aws.String("de"),
			ContentDisposition: aws.String("inline"), CacheControl: aws.String("no-cache"),
			Expires:  aws.Time(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)),
			Metadata: map[string]string{"owner": "ann", "Number": "7"},
		})
		require.NoError(t, err)
		want := attributes(t, client)
		require.Len(t, want, 8)
		require.ErrorIs(t, guard.Write(t.Context(), write(1), "a", nil), objectguard.ErrUnguarded)

		require.NoError(t, guard.Adopt(t.Context(), write(1), "a"))
		data, err := guard.Read(t.Context(), write(1), "a")
		require.NoError(t, err)
		require.Equal(t, "as it was", string(data))
		require.Equal(t, want, attributes(t, client))
		require.NoError(t, guard.Write(t.Context(), write(2), "a", []byte("new")))
		require.Equal(t, want, attributes(t, client))
		require.NoError(t, guard.Delete(t.Context(), write(3), "a"))
		require.NoError(t, guard.Write(t.Context(), write(4), "a", []byte("newer")))
		require.Equal(t, want, attributes(t, client))
	})
}

// keepHeaders adds what gofakes3 forgets: it answers with those headers of the last PUT.
func keepHeaders(f *front) {
	var last http.Header
	f.put = func(_ http.ResponseWriter, r *http.Request) bool {
		last = r.Header
		return false
	}
	server := f.server
	f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Content-Language", "Cache-Control", "Expires"} {
			if value := last.Get(name); value != "" && r.Method != http.MethodPut {
				w.Header().Set(name, value)
			}
		}
		server.ServeHTTP(w, r)
	})
}

// attributes asks past the guard.
func attributes(t *testing.T, client *s3.Client) map[string]string {
	t.Helper()
	head, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(bucket), Key: aws.String("a")})
	require.NoError(t, err)
	found := map[string]string{}
	for name, value := range map[string]*string{
		"type": head.ContentType, "encoding": head.ContentEncoding, "language": head.ContentLanguage,
		"disposition": head.ContentDisposition, "cache": head.CacheControl, "expires": head.ExpiresString,
	} {
		if value != nil {
			found[name] = *value
		}
	}
	for name, value := range head.Metadata {
		found["meta "+name] = value
	}
	return found
}
