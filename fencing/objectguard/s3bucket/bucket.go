package s3bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// Bucket is a bucket of S3. It is safe for concurrent use.
type Bucket struct {
	client *s3.Client
	name   string
}

var _ objectguard.Bucket = (*Bucket)(nil)

// New returns the bucket of this name. The client needs s3:GetObject,
// s3:PutObject and, to tell an object that does not exist from one that is
// forbidden, s3:ListBucket.
func New(client *s3.Client, name string) *Bucket { return &Bucket{client: client, name: name} }

// Get implements [objectguard.Bucket]; the generation is the ETag.
func (b *Bucket) Get(ctx context.Context, key string) ([]byte, string, error) {
	output, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if missing := (*types.NoSuchKey)(nil); errors.As(err, &missing) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", b.failed("get", key, err)
	}
	defer output.Body.Close()
	content, err := io.ReadAll(output.Body)
	if err != nil {
		return nil, "", b.failed("get", key, err)
	}
	if aws.ToString(output.ETag) == "" {
		return nil, "", b.failed("get", key, errors.New("the answer has no ETag"))
	}
	return content, *output.ETag, nil
}

// PutIf implements [objectguard.Bucket]. The request is sent once, whatever the
// client's settings for retries are.
func (b *Bucket) PutIf(ctx context.Context, key string, content []byte, generation string) error {
	input := &s3.PutObjectInput{Bucket: &b.name, Key: &key, Body: bytes.NewReader(content)}
	if generation == "" {
		input.IfNoneMatch = aws.String("*")
	} else {
		input.IfMatch = &generation
	}
	_, err := b.client.PutObject(ctx, input, once)
	if err == nil {
		return nil
	}
	if refused(err) {
		return fmt.Errorf("%w: %w", objectguard.ErrConflict, err)
	}
	return b.failed("put", key, err)
}

// once keeps the client from repeating a request whose answer was lost: if the
// first was carried out, the second would be refused because of the first.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

// refused reports whether the store has answered that it wrote nothing because of
// the condition: 412 where it does not hold, 409 where another write is under way
// at the same time, 404 for If-Match where the object is gone.
func refused(err error) bool {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return false
	}
	switch response.HTTPStatusCode() {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return true
	case http.StatusNotFound:
		missing := (*types.NoSuchKey)(nil)
		return errors.As(err, &missing)
	}
	return false
}

func (b *Bucket) failed(operation, key string, err error) error {
	return fmt.Errorf("s3bucket: %s %q in %q: %w", operation, key, b.name, err)
}
