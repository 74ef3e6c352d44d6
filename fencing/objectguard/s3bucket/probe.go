package s3bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// ErrUnconditional reports that the store does not honour the conditions.
var ErrUnconditional = errors.New("s3bucket: the store ignores conditions on PUT")

// Probe checks whether the store honours conditions, with a small object that it creates under prefix and deletes. The
// error is [ErrUnconditional] if a write was carried out although its condition did not hold, or refused although it
// did. It needs s3:DeleteObject. It cannot check whether the store compares and writes in one step.
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
	if err := b.attempt(ctx, key, "one", "", true); err != nil {
		return err
	}
	if err := b.attempt(ctx, key, "two", "", false); err != nil {
		return err
	}
	first, err := b.Get(ctx, key)
	if err != nil {
		return err
	}
	if err := b.attempt(ctx, key, "three", first.Generation, true); err != nil {
		return err
	}
	return b.attempt(ctx, key, "four", first.Generation, false)
}

// attempt writes conditionally and compares the outcome with the expected one.
func (b *Bucket) attempt(ctx context.Context, key, content, generation string, holds bool) error {
	err := b.PutIf(ctx, key, objectguard.Object{Content: []byte(content), Generation: generation})
	switch {
	case err != nil && !errors.Is(err, objectguard.ErrConflict):
		return err
	case (err == nil) == holds:
		return nil
	}
	condition := "If-None-Match: *"
	if generation != "" {
		condition = "If-Match: " + generation
	}
	return fmt.Errorf("%w: bucket %q, %s, holds=%t, carried out=%t",
		ErrUnconditional, b.name, condition, holds, err == nil)
}
