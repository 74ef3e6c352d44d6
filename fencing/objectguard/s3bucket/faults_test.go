package s3bucket_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/fencing/objectguard/s3bucket"
)

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
		_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
		require.NoError(t, err)
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

func TestFailingWrites(t *testing.T) {
	outcomes := []error{objectguard.ErrConflict, objectguard.ErrRefused, objectguard.ErrUnknown}
	for _, tt := range []struct {
		status int
		code   string
		want   error // where the failure stays; nothing else of outcomes
		puts   int   // until then
	}{
		{http.StatusPreconditionFailed, "PreconditionFailed", objectguard.ErrConflict, 10},
		{http.StatusConflict, "ConditionalRequestConflict", objectguard.ErrConflict, 10},
		{http.StatusConflict, "OperationAborted", objectguard.ErrConflict, 10},
		{http.StatusConflict, "", objectguard.ErrConflict, 10},
		{http.StatusNotFound, "NoSuchKey", objectguard.ErrConflict, 10},
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
				data, err := guard.Read(t.Context(), write(3), "a")
				require.NoError(t, err)
				require.Equal(t, "three", string(data))
			})
		})
	}
}
