package s3bucket_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/fencing/objectguard/s3bucket"
)

// The server's own behaviour, without this package between: the tests below would
// prove nothing on one that ignores the conditions.
func TestTheServerHonoursConditions(t *testing.T) {
	client := start(t, nil)
	put := func(body string, condition func(*s3.PutObjectInput)) (etag string, status int) {
		input := &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("a"), Body: bytes.NewReader([]byte(body))}
		condition(input)
		output, err := client.PutObject(t.Context(), input)
		if err == nil {
			return *output.ETag, http.StatusOK
		}
		var response *smithyhttp.ResponseError
		require.ErrorAs(t, err, &response)
		return "", response.HTTPStatusCode()
	}
	absent := func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") }
	match := func(etag string) func(*s3.PutObjectInput) {
		return func(in *s3.PutObjectInput) { in.IfMatch = &etag }
	}
	_, status := put("zero", match(`"0123456789abcdef0123456789abcdef"`))
	require.Equal(t, http.StatusPreconditionFailed, status, "there is no object")
	one, status := put("one", absent)
	require.Equal(t, http.StatusOK, status)
	_, status = put("two", absent)
	require.Equal(t, http.StatusPreconditionFailed, status)
	two, status := put("two", match(one))
	require.Equal(t, http.StatusOK, status)
	_, status = put("three", match(one))
	require.Equal(t, http.StatusPreconditionFailed, status)
	_, status = put("two", match(two))
	require.Equal(t, http.StatusOK, status)
	_, status = put("four", match(two))
	require.Equal(t, http.StatusOK, status, "the same content has the same ETag")
}

func TestBucket(t *testing.T) {
	b, ctx := s3bucket.New(start(t, nil), bucket), t.Context()
	found, err := b.Get(ctx, "a")
	require.NoError(t, err)
	require.Zero(t, found)

	put := func(content, generation string) error {
		return b.PutIf(ctx, "a", objectguard.Object{Content: []byte(content), Generation: generation})
	}
	require.NoError(t, put("one", ""))
	require.ErrorIs(t, put("two", ""), objectguard.ErrConflict)
	one, err := b.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "one", string(one.Content))
	require.NoError(t, put("two", one.Generation))
	require.ErrorIs(t, put("three", one.Generation), objectguard.ErrConflict)
	two, err := b.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "two", string(two.Content))
	require.NotEqual(t, one.Generation, two.Generation)

	other := s3bucket.New(start(t, nil), "no-such-bucket")
	_, err = other.Get(ctx, "a")
	require.ErrorContains(t, err, "no-such-bucket")
}

func TestProbe(t *testing.T) {
	client := start(t, nil)
	require.NoError(t, s3bucket.New(client, bucket).Probe(t.Context(), "probe/"))
	left, err := client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})
	require.NoError(t, err)
	require.Empty(t, left.Contents, "it cleans up")

	for _, header := range []string{"If-Match", "If-None-Match"} {
		deaf := start(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(header)
				next.ServeHTTP(w, r)
			})
		})
		require.ErrorIs(t, s3bucket.New(deaf, bucket).Probe(t.Context(), ""), s3bucket.ErrUnconditional, header)
	}
}

// The answer to a write is lost once it has been carried out. The client must not
// send it again, and the guard finds out that it is done.
func TestLostAnswer(t *testing.T) {
	var puts atomic.Int32
	var lose atomic.Bool
	client := start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut || !lose.Load() {
				next.ServeHTTP(w, r)
				return
			}
			puts.Add(1)
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // cuts the connection
		})
	})
	guard := objectguard.New(s3bucket.New(client, bucket))
	require.NoError(t, guard.Write(t.Context(), write(1), "a", []byte("one")))
	lose.Store(true)
	require.NoError(t, guard.Write(t.Context(), write(2), "a", []byte("two")))
	require.EqualValues(t, 1, puts.Load())
	data, err := guard.Read(t.Context(), write(2), "a")
	require.NoError(t, err)
	require.Equal(t, "two", string(data))
}

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
