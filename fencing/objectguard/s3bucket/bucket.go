package s3bucket

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

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
	b.setChecksum(input, o.Content)
	_, err := b.client.PutObject(ctx, input, once)
	if err == nil {
		return nil
	}
	if kind := verdict(err); kind != nil {
		return fmt.Errorf("%w: %w", kind, b.failed("put", key, err))
	}
	return b.failed("put", key, err)
}

// setChecksum gives the request the checksum that the SDK would compute by itself, if the client wants one. Over HTTPS
// the SDK would send it behind the content, and the content in frames (aws-chunked). Some stores keep these frames as a
// part of the object.
func (b *Bucket) setChecksum(input *s3.PutObjectInput, content []byte) {
	if b.client.Options().RequestChecksumCalculation == aws.RequestChecksumCalculationWhenSupported {
		sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(content))
		input.ChecksumCRC32 = aws.String(base64.StdEncoding.EncodeToString(sum))
	}
}

// once keeps the client from repeating a request after its answer was lost: if the first was carried out, the second
// would be refused because of the first.
func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

func (b *Bucket) failed(operation, key string, err error) error {
	return fmt.Errorf("s3bucket: %s %q in %q: %w", operation, key, b.name, err)
}

// metaPrefix is the prefix of the headers with the user's metadata.
const metaPrefix = "x-amz-meta-"

// attributesOf returns the properties of an object that a GET returns and a PUT replaces, by the names of their
// headers.
func attributesOf(output *s3.GetObjectOutput) map[string]string {
	attributes := map[string]string{}
	for name, value := range map[string]*string{
		"Content-Type":        output.ContentType,
		"Content-Encoding":    encodingOf(output.ContentEncoding),
		"Content-Language":    output.ContentLanguage,
		"Content-Disposition": output.ContentDisposition,
		"Cache-Control":       output.CacheControl,
		"Expires":             output.ExpiresString,
	} {
		if value != nil {
			attributes[name] = *value
		}
	}
	for name, value := range output.Metadata {
		attributes[metaPrefix+name] = value
	}
	return attributes
}

// encodingOf returns the encoding of an object without aws-chunked, which names the frames of a request. Some stores
// keep it, and each write that sends it again would add one more.
func encodingOf(field *string) *string {
	if field == nil || !strings.Contains(strings.ToLower(*field), framed) {
		return field
	}
	var kept []string
	for part := range strings.SplitSeq(*field, ",") {
		if part = strings.TrimSpace(part); !strings.EqualFold(part, framed) {
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return aws.String(strings.Join(kept, ", "))
}

// framed is the encoding of a request whose content the SDK has put into frames.
const framed = "aws-chunked"

// setAttributes is the inverse of attributesOf.
func setAttributes(input *s3.PutObjectInput, attributes map[string]string) {
	fields := map[string]**string{
		"Content-Type":        &input.ContentType,
		"Content-Encoding":    &input.ContentEncoding,
		"Content-Language":    &input.ContentLanguage,
		"Content-Disposition": &input.ContentDisposition,
		"Cache-Control":       &input.CacheControl,
	}
	input.Metadata = map[string]string{}
	for name, value := range attributes {
		if field, ok := fields[name]; ok {
			*field = &value
		} else if name, ok := strings.CutPrefix(name, metaPrefix); ok {
			input.Metadata[name] = value
		}
	}
	if at, err := http.ParseTime(attributes["Expires"]); err == nil {
		input.Expires = &at
	}
}

// verdict returns what an error of a PUT proves. The write was not carried out, and is
//
//   - [objectguard.ErrConflict]: 412 if the condition does not hold, 404 for If-Match if the object is gone;
//   - [objectguard.ErrRefused]: another 3xx or 4xx, or 501, unless the SDK would try it again (throttling, a request
//     that arrived too slowly).
//
// Any other error is nil. A 500, 502, 503 or 504 may come from a gateway that has passed the request on, so like a
// missing answer it proves nothing. A 409 says that the store works on another request for the object, which may be the
// first copy of this one.
func verdict(err error) error {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return nil
	}
	status := response.HTTPStatusCode()
	switch {
	case status == http.StatusPreconditionFailed, gone(err):
		return objectguard.ErrConflict
	case status == http.StatusConflict, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests,
		worthwhile(err):
		return nil
	case 300 <= status && status < 500, status == http.StatusNotImplemented:
		return objectguard.ErrRefused
	}
	return nil
}

// gone reports whether there is no object to match. PutObject has no type for it.
func gone(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == "NoSuchKey"
}

// worthwhile reports whether the SDK would try again by default.
func worthwhile(err error) bool {
	return retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}
