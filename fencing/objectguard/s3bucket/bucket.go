package s3bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// Bucket is a bucket of S3. It is safe for concurrent use. Without a client or a name, as in the zero value, it refuses
// every call.
type Bucket struct {
	client *s3.Client
	name   string
}

var _ objectguard.Bucket = (*Bucket)(nil)

// New returns the bucket of this name. The client needs s3:GetObject, s3:PutObject and s3:ListBucket; without the last,
// S3 answers 403 both for a missing object and for a forbidden one.
func New(client *s3.Client, name string) *Bucket { return &Bucket{client: client, name: name} }

var errUnusable = errors.New("s3bucket: the bucket has no client or no name, make it with New")

func (b *Bucket) isUnusable() bool { return b.client == nil || b.name == "" }

// Get implements [objectguard.Bucket]; the generation is the ETag.
func (b *Bucket) Get(ctx context.Context, key string) (objectguard.Object, error) {
	var none objectguard.Object
	if b.isUnusable() {
		return none, errUnusable
	}
	output, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if missing := (*types.NoSuchKey)(nil); errors.As(err, &missing) {
		return none, nil
	}
	if err != nil {
		return none, b.failed("get", key, err)
	}
	defer func() { _ = output.Body.Close() }()
	content, err := io.ReadAll(output.Body)
	if err != nil {
		return none, b.failed("get", key, err)
	}
	if aws.ToString(output.ETag) == "" {
		return none, b.failed("get", key, errors.New("the answer has no ETag"))
	}
	return objectguard.Object{Content: content, Generation: *output.ETag, Attributes: attributesOf(output)}, nil
}

// PutIf implements [objectguard.Bucket]. The request is sent once, regardless of the client's settings for retries.
func (b *Bucket) PutIf(ctx context.Context, key string, o objectguard.Object) error {
	if b.isUnusable() {
		return fmt.Errorf("%w: %w", objectguard.ErrRefused, errUnusable)
	}
	input := &s3.PutObjectInput{Bucket: &b.name, Key: &key, Body: bytes.NewReader(o.Content)}
	if o.Generation == "" {
		input.IfNoneMatch = aws.String("*")
	} else {
		input.IfMatch = &o.Generation
	}
	setAttributes(input, o.Attributes)
	_, err := b.client.PutObject(ctx, input, once)
	if err == nil {
		return nil
	}
	if kind := verdict(err); kind != nil {
		return fmt.Errorf("%w: %w", kind, b.failed("put", key, err))
	}
	return b.failed("put", key, err)
}

// once keeps the client from repeating a request after its answer was lost: if the first was carried out, the second
// would be refused because of the first.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

func (b *Bucket) failed(operation, key string, err error) error {
	return fmt.Errorf("s3bucket: %s %q in %q: %w", operation, key, b.name, err)
}
