package s3bucket_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
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
}

func TestErrorsThatAreNoConflicts(t *testing.T) {
	b := s3bucket.New(start(t, nil), "no-such-bucket")
	_, err := b.Get(t.Context(), "a")
	require.ErrorContains(t, err, "no-such-bucket")
	err = b.PutIf(t.Context(), "a", objectguard.Object{Generation: `"0123456789abcdef0123456789abcdef"`})
	require.ErrorContains(t, err, "no-such-bucket")
	require.ErrorIs(t, err, objectguard.ErrRefused)
	require.NotErrorIs(t, err, objectguard.ErrConflict)
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

const (
	requests = 4 // of each holder at a time
	counts   = 40
)

// A holder that was overtaken counts on beside the one that has the lock.
func TestCountsAreExact(t *testing.T) {
	guard := objectguard.New(s3bucket.New(start(t, nil), bucket))
	accepted := count(t, func(ctx context.Context, f fencing.Fence) error {
		return guard.Update(ctx, f, "a", func(old []byte) ([]byte, error) { return increment(old), nil })
	})
	data, err := guard.Read(t.Context(), read(2), "a")
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(accepted, 10), string(data))
	require.GreaterOrEqual(t, accepted, int64(requests*counts), "the newer is never refused")
	require.ErrorIs(t, guard.Write(t.Context(), write(1), "a", nil), fencing.ErrStale)
}

// The same without the conditions loses counts: the test above can fail.
func TestCountsWithoutAGuardAreLost(t *testing.T) {
	client := start(t, nil)
	b := s3bucket.New(client, bucket)
	accepted := count(t, func(ctx context.Context, _ fencing.Fence) error {
		old, err := b.Get(ctx, "a")
		if err != nil {
			return err
		}
		_, err = client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String("a"), Body: bytes.NewReader(increment(old.Content)),
		})
		return err
	})
	last, err := b.Get(t.Context(), "a")
	require.NoError(t, err)
	stored, err := strconv.ParseInt(string(last.Content), 10, 64)
	require.NoError(t, err)
	require.Less(t, stored, accepted)
	t.Logf("%d of %d counts lost", accepted-stored, accepted)
}

func increment(old []byte) []byte {
	n, _ := strconv.Atoi(string(old)) // 0 at first
	return []byte(strconv.Itoa(n + 1))
}

// count lets the holders with the tokens 1 and 2 add counts, in several requests
// at a time, and returns how many were accepted.
func count(t *testing.T, add func(context.Context, fencing.Fence) error) int64 {
	t.Helper()
	var accepted atomic.Int64
	var group sync.WaitGroup
	for i := range 2 * requests {
		group.Go(func() {
			for range counts {
				err := add(t.Context(), write(fencing.Token(1+i%2)))
				if errors.Is(err, fencing.ErrStale) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				accepted.Add(1)
			}
		})
	}
	group.Wait()
	return accepted.Load()
}

func BenchmarkWrite(b *testing.B) {
	content := bytes.Repeat([]byte("x"), 4096)
	b.Run("unguarded", func(b *testing.B) {
		client := start(b, nil)
		for b.Loop() {
			_, err := client.PutObject(b.Context(), &s3.PutObjectInput{
				Bucket: aws.String(bucket), Key: aws.String("a"), Body: bytes.NewReader(content),
			})
			require.NoError(b, err)
		}
	})
	b.Run("guarded", func(b *testing.B) {
		guard := objectguard.New(s3bucket.New(start(b, nil), bucket))
		f := write(1)
		for b.Loop() {
			f.Token++
			require.NoError(b, guard.Write(b.Context(), f, "a", content))
		}
	})
}
