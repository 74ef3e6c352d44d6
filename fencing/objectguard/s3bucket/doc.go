// Package s3bucket is the [objectguard.Bucket] for S3 and compatible stores: an object is written with If-Match and the
// ETag that was read, a new object with If-None-Match: *.
//
//	guard := objectguard.New(s3bucket.New(client, "my-bucket"))
//
// The store has to honour both conditions on PutObject, and compare and write in one step. Amazon's S3 does since
// November 2024. A store that ignores them overwrites without an error, and then nothing is fenced: call [Bucket.Probe]
// once, when the service starts, to detect that. Probe also detects a store or a proxy that changes the content.
//
// A PUT replaces an object with its properties. Content-Type, Content-Encoding, Content-Language, Content-Disposition,
// Cache-Control, Expires and x-amz-meta-* are written as they were read. Tags, ACL, storage class and encryption are
// not: they get the bucket's values for a new object.
//
// Do not let a lifecycle rule or a person delete or overwrite guarded objects: their registers would be lost.
package s3bucket
