package s3bucket_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/objectguard"
	"github.com/seed74116694/fencelock/fencing/objectguard/s3bucket"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A bucket of S3 whose objects only the newest holder of a lock can write.
func Example() {
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server()) // in the place of S3
	defer server.Close()
	client := connect(server.URL, server.Client())
	ctx := context.Background()
	_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("orders")})
	must(err)

	bucket := s3bucket.New(client, "orders")
	if err := bucket.Probe(ctx, "probe/"); err != nil {
		fmt.Println("this store cannot be fenced:", err)
		return
	}
	guard := objectguard.New(bucket)

	// ctx is that of a lease, as its Context method returns it.
	save := func(ctx context.Context, state string) error {
		fence, err := fencing.Require(ctx, "orders/42")
		if err != nil {
			return err
		}
		return guard.Write(ctx, fence, "42.json", []byte(state))
	}
	fmt.Println(save(fencing.NewContext(ctx, write(34)), `{"state":"shipped"}`))
	fmt.Println(save(fencing.NewContext(ctx, write(33)), `{"state":"packed"}`)) // was paused
	data, err := guard.Read(ctx, read(35), "42.json")
	fmt.Println(string(data), err)
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 34, got 33
	// {"state":"shipped"} <nil>
}

// connect returns a client that sends checksums as one of config.LoadDefaultConfig does.
func connect(url string, transport s3.HTTPClient) *s3.Client {
	return s3.New(s3.Options{
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		BaseEndpoint:               &url,
		Region:                     "us-east-1",
		UsePathStyle:               true,
		HTTPClient:                 transport,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "tester", SecretAccessKey: "secret"}, nil
		}),
	})
}

const lock = "orders/42"

func read(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Read}
}

func write(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Write}
}
