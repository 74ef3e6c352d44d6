package s3bucket_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lock   = "orders/42"
	bucket = "orders"
)

func read(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Read}
}

func write(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Write}
}

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
	_, err := client.CreateBucket(tb.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
	require.NoError(tb, err)
	return client
}

func connect(url string, transport s3.HTTPClient) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url,
		Region:       "us-east-1",
		UsePathStyle: true,
		HTTPClient:   transport,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "tester", SecretAccessKey: "secret"}, nil
		}),
	})
}
