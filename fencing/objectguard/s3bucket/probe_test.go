package s3bucket_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/fencing/objectguard/s3bucket"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

func TestProbe(t *testing.T) {
	client := start(t, nil)
	require.NoError(t, s3bucket.New(client, bucket).Probe(t.Context(), "probe/"))
	left := expect.NoError(client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})).In(t)
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

// A store or something before it that changes the content.
func TestProbeComparesTheContent(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"an envelope": func(b []byte) []byte { return append([]byte("8;chunk-signature=0\r\n"), b...) },
		"line breaks": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")) },
		"characters":  func(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("?")) },
		"the end":     func(b []byte) []byte { return b[:len(b)-1] },
		"nothing":     func([]byte) []byte { return nil },
	} {
		altering := start(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPut && len(body) > 0 {
					body = change(body)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
					r.Header.Set("Content-Length", strconv.Itoa(len(body)))
				}
				next.ServeHTTP(w, r)
			})
		})
		err := s3bucket.New(altering, bucket).Probe(t.Context(), "")
		require.ErrorIs(t, err, s3bucket.ErrAltered, name)
		require.NotErrorIs(t, err, s3bucket.ErrUnconditional, name)
	}
}

// A store that refuses a write, and carries it out.
func TestProbeFindsWhatWasCarriedOutAllTheSame(t *testing.T) {
	for _, header := range []string{"If-Match", "If-None-Match"} {
		lying := start(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(header) == "" {
					next.ServeHTTP(w, r)
					return
				}
				body := expect.NoError(io.ReadAll(r.Body)).In(t)
				r.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(w, r)
				again := r.Clone(r.Context())
				again.Header.Del(header)
				again.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(discard{}, again)
			})
		})
		require.ErrorIs(t, s3bucket.New(lying, bucket).Probe(t.Context(), ""), s3bucket.ErrUnconditional, header)
	}
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// Over HTTPS the SDK wraps what it sends into frames with a checksum behind, unless it has one before. This server, as
// others, stores the frames.
func TestNoEnvelopeIsSent(t *testing.T) {
	for _, url := range []string{"https://s3.test", "http://s3.test"} {
		var last http.Header
		f := &front{server: gofakes3.New(s3mem.New()).Server()}
		f.put = func(_ http.ResponseWriter, r *http.Request) bool {
			last = r.Header.Clone()
			return false
		}
		client := connect(url, f)
		expect.NoError(client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})).In(t)
		b := s3bucket.New(client, bucket)
		require.NoError(t, b.Probe(t.Context(), "probe/"))

		guard := objectguard.New(b)
		require.NoError(t, guard.Write(t.Context(), write(1), "a", []byte("paid")))
		require.Equal(t, "paid", string(expect.NoError(guard.Read(t.Context(), write(1), "a")).In(t)))
		require.Empty(t, last.Get("Content-Encoding"))

		require.NoError(t, b.PutIf(t.Context(), "b", objectguard.Object{Content: []byte("123456789")}))
		require.Equal(t, "y/Q5Jg==", last.Get("X-Amz-Checksum-Crc32"), "the check value of CRC-32")
	}
}

// A client that does not want checksums sends none.
func TestChecksumsCanBeSwitchedOff(t *testing.T) {
	inFakeTime(t, func(t *testing.T, f *front, client *s3.Client, _ *objectguard.Guard) {
		var last http.Header
		f.put = func(_ http.ResponseWriter, r *http.Request) bool {
			last = r.Header.Clone()
			return false
		}
		options := client.Options()
		options.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		require.NoError(t, s3bucket.New(s3.New(options), bucket).Probe(t.Context(), ""))
		for name := range last {
			require.NotContains(t, name, "Checksum")
		}
	})
}

// Some stores take the frames off and keep the name of the encoding. It belongs to the request, not to the object.
func TestTheEncodingOfTheRequestIsNotKept(t *testing.T) {
	for kept, want := range map[string]string{
		"aws-chunked": "", "AWS-Chunked, br": "br", "br,aws-chunked": "br", "gzip, br": "gzip, br", "br": "br", "": "",
	} {
		inFakeTime(t, func(t *testing.T, f *front, client *s3.Client, guard *objectguard.Guard) {
			server := f.server
			f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if kept != "" && r.Method == http.MethodGet {
					w.Header().Set("Content-Encoding", kept)
				}
				server.ServeHTTP(w, r)
			})
			require.NoError(t, guard.Write(t.Context(), write(1), "a", nil))
			var sent []string
			f.put = func(_ http.ResponseWriter, r *http.Request) bool {
				sent = r.Header.Values("Content-Encoding")
				return false
			}
			require.NoError(t, guard.Write(t.Context(), write(2), "a", nil))
			if want == "" {
				require.Empty(t, sent, kept)
				return
			}
			require.Equal(t, []string{want}, sent, kept)
		})
	}
}
