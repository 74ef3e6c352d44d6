package s3bucket_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/fencing/objectguard/s3bucket"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

// The server's own behaviour: on one that ignores the conditions the tests below would prove nothing.
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
	require.Zero(t, expect.NoError(b.Get(ctx, "a")).In(t))

	put := func(content, generation string) error {
		return b.PutIf(ctx, "a", objectguard.Object{Content: []byte(content), Generation: generation})
	}
	require.NoError(t, put("one", ""))
	require.ErrorIs(t, put("two", ""), objectguard.ErrConflict)
	one := expect.NoError(b.Get(ctx, "a")).In(t)
	require.Equal(t, "one", string(one.Content))
	require.NoError(t, put("two", one.Generation))
	require.ErrorIs(t, put("three", one.Generation), objectguard.ErrConflict)
	two := expect.NoError(b.Get(ctx, "a")).In(t)
	require.Equal(t, "two", string(two.Content))
	require.NotEqual(t, one.Generation, two.Generation)

	other := s3bucket.New(start(t, nil), "no-such-bucket")
	_, err := other.Get(ctx, "a")
	require.ErrorContains(t, err, "no-such-bucket")
}

// The answer to a write that was carried out is lost. The client does not send it again: the guard finds it done.
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
	require.Equal(t, "two", string(expect.NoError(guard.Read(t.Context(), write(2), "a")).In(t)))
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
		require.Equal(t, "as it was", string(expect.NoError(guard.Read(t.Context(), write(1), "a")).In(t)))
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

// front answers requests without a network, so that pauses pass in fake time. PUTs are counted, and answered by put
// if that is set; what it does not handle goes to a server that speaks S3.
type front struct {
	server http.Handler
	puts   int
	put    func(w http.ResponseWriter, r *http.Request) (handled bool)
}

func (f *front) Do(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10)) // as the server's side of net/http does
	answer := httptest.NewRecorder()
	handled := false
	if r.Method == http.MethodPut {
		f.puts++
		handled = f.put != nil && f.put(answer, r)
	}
	if !handled {
		f.server.ServeHTTP(answer, r)
	}
	return answer.Result(), nil
}

// inFakeTime runs test in a bubble, with a bucket behind a front.
func inFakeTime(t *testing.T, test func(t *testing.T, f *front, client *s3.Client, guard *objectguard.Guard)) {
	synctest.Test(t, func(t *testing.T) {
		f := &front{server: gofakes3.New(s3mem.New()).Server()}
		client := connect("http://s3.test", f)
		expect.NoError(client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})).In(t)
		f.puts = 0
		test(t, f, client, objectguard.New(s3bucket.New(client, bucket)))
	})
}

// failing answers as S3 does, the first n times.
func failing(n, status int, code string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if n--; n < 0 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if code != "" {
			fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>m</Message></Error>`, code)
		}
		return true
	}
}

const forever = 1 << 30

// The store works on another request for the object. It may be the first copy of this one, sent by a gateway.
func TestABusyStoreProvesNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *front, client *s3.Client, _ *objectguard.Guard) {
		for _, code := range []string{"ConditionalRequestConflict", "OperationAborted", ""} {
			f.put = failing(1, http.StatusConflict, code)
			err := s3bucket.New(client, bucket).PutIf(t.Context(), "a", objectguard.Object{Content: []byte("x")})
			require.ErrorContains(t, err, code)
			require.NotErrorIs(t, err, objectguard.ErrConflict)
			require.NotErrorIs(t, err, objectguard.ErrRefused)
		}
	})
}

func TestFailingWrites(t *testing.T) {
	outcomes := []error{objectguard.ErrConflict, objectguard.ErrRefused, objectguard.ErrUnknown}
	for _, tt := range []struct {
		status int
		code   string
		want   error // where the failure stays; nothing else of outcomes
		puts   int   // until then
	}{
		{http.StatusPreconditionFailed, "PreconditionFailed", objectguard.ErrUnknown, 10},
		{http.StatusConflict, "ConditionalRequestConflict", objectguard.ErrUnknown, 10},
		{http.StatusConflict, "OperationAborted", objectguard.ErrUnknown, 10},
		{http.StatusConflict, "", objectguard.ErrUnknown, 10},
		{http.StatusNotFound, "NoSuchKey", objectguard.ErrUnknown, 10},
		{http.StatusServiceUnavailable, "SlowDown", objectguard.ErrUnknown, 10},
		{http.StatusServiceUnavailable, "", objectguard.ErrUnknown, 10},
		{http.StatusInternalServerError, "InternalError", objectguard.ErrUnknown, 10},
		{http.StatusBadGateway, "", objectguard.ErrUnknown, 10},
		{http.StatusGatewayTimeout, "", objectguard.ErrUnknown, 10},
		{http.StatusTooManyRequests, "", objectguard.ErrUnknown, 10},
		{http.StatusBadRequest, "RequestTimeout", objectguard.ErrUnknown, 10},
		{http.StatusForbidden, "AccessDenied", objectguard.ErrRefused, 1},
		{http.StatusForbidden, "RequestTimeTooSkewed", objectguard.ErrRefused, 1},
		{http.StatusNotFound, "NoSuchBucket", objectguard.ErrRefused, 1},
		{http.StatusBadRequest, "EntityTooLarge", objectguard.ErrRefused, 1},
		{http.StatusNotImplemented, "NotImplemented", objectguard.ErrRefused, 1},
	} {
		t.Run(fmt.Sprint(tt.status, tt.code), func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, f *front, _ *s3.Client, guard *objectguard.Guard) {
				require.NoError(t, guard.Write(t.Context(), write(1), "a", []byte("one")))

				f.puts, f.put = 0, failing(forever, tt.status, tt.code)
				began := time.Now()
				err := guard.Write(t.Context(), write(2), "a", []byte("two"))
				for _, outcome := range outcomes {
					require.Equal(t, outcome == tt.want, errors.Is(err, outcome), "%v: %v", outcome, err)
				}
				require.ErrorContains(t, err, tt.code)
				require.Equal(t, tt.puts, f.puts)
				require.Less(t, time.Since(began), 4*time.Second)

				f.puts, f.put = 0, failing(3, tt.status, tt.code)
				err = guard.Write(t.Context(), write(3), "a", []byte("three"))
				if tt.want == objectguard.ErrRefused {
					require.ErrorIs(t, err, tt.want)
					require.Equal(t, 1, f.puts)
					return
				}
				require.NoError(t, err, "it did not stay")
				require.Equal(t, 4, f.puts)
				require.Equal(t, "three", string(expect.NoError(guard.Read(t.Context(), write(3), "a")).In(t)))
			})
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bucket = "orders"

// start starts a server that speaks S3 over HTTP, with a bucket in it, and returns
// a client. The server checks conditions and writes under one mutex. between, if
// not nil, stands between the client and the server.
func start(tb testing.TB, between func(http.Handler) http.Handler) *s3.Client {
	tb.Helper()
	handler := gofakes3.New(s3mem.New()).Server()
	if between != nil {
		handler = between(handler)
	}
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	client := connect(server.URL, server.Client())
	expect.NoError(client.CreateBucket(tb.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})).In(tb)
	return client
}
