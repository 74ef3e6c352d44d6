package s3bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

var (
	// ErrUnconditional reports that the store does not honour the conditions.
	ErrUnconditional = errors.New("s3bucket: the store ignores conditions on PUT")

	// ErrAltered reports that the store, or a proxy before it, does not give back what was put: a guard could not read
	// the object again.
	ErrAltered = errors.New("s3bucket: the store does not give back what was put")
)

// Probe checks whether the store honours conditions and keeps what is put, with a small object that it creates under
// prefix and deletes. The error is [ErrUnconditional] if a write was carried out although its condition did not hold,
// or refused although it did; and [ErrAltered] if the object is then another one than was put. It needs
// s3:DeleteObject. It cannot check whether the store compares and writes in one step.
//
// A store that refuses the field x-amz-checksum-crc32 needs a client with
// [aws.RequestChecksumCalculationWhenRequired].
func (b *Bucket) Probe(ctx context.Context, prefix string) (err error) {
	if b.isUnusable() {
		return errUnusable
	}
	key := prefix + rand.Text()
	defer func() {
		ctx := context.WithoutCancel(ctx)
		if _, failure := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key}); failure != nil {
			err = errors.Join(err, b.failed("delete", key, failure))
		}
	}()
	first, err := b.attempt(ctx, key, objectguard.Object{Content: probeContent("one")}, nil)
	if err != nil {
		return err
	}
	if _, err = b.attempt(ctx, key, objectguard.Object{Content: probeContent("two")}, &first); err != nil {
		return err
	}
	second, err := b.attempt(ctx, key,
		objectguard.Object{Content: probeContent("three"), Generation: first.Generation}, nil)
	if err != nil {
		return err
	}
	_, err = b.attempt(ctx, key,
		objectguard.Object{Content: probeContent("four"), Generation: first.Generation}, &second)
	return err
}

// probeContent is what a conversion of texts, of line breaks or of characters would change.
func probeContent(name string) []byte { return []byte(name + "\r\n\x00\xff\n") }

// attempt writes o conditionally and returns the object that is there afterwards: o if before is nil, since the
// condition holds then, or else before.
func (b *Bucket) attempt(
	ctx context.Context, key string, o objectguard.Object, before *objectguard.Object,
) (now objectguard.Object, err error) {
	refusal := b.PutIf(ctx, key, o)
	if refusal != nil && !errors.Is(refusal, objectguard.ErrConflict) {
		return now, refusal
	}
	if now, err = b.Get(ctx, key); err != nil {
		return now, err
	}
	want, holds := o, before == nil
	if !holds {
		want = *before
	}
	stored := refusal == nil || string(now.Content) == string(o.Content)
	if stored != holds {
		condition := "If-None-Match: *"
		if o.Generation != "" {
			condition = "If-Match: " + o.Generation
		}
		return now, fmt.Errorf("%w: bucket %q, %s, holds=%t, carried out=%t, answer: %v",
			ErrUnconditional, b.name, condition, holds, stored, refusal)
	}
	if string(now.Content) != string(want.Content) {
		const most = 256
		return now, fmt.Errorf("%w: bucket %q: put %q, got %d bytes: %.*q",
			ErrAltered, b.name, want.Content, len(now.Content), most, now.Content)
	}
	return now, nil
}
