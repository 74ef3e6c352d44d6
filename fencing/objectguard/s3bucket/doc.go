// Package s3bucket is the [objectguard.Bucket] for S3 and what speaks its
// protocol: an object is written with If-Match and the ETag that was read, a new
// one with If-None-Match: *.
//
//	guard := objectguard.New(s3bucket.New(client, "my-bucket"))
//
// The store has to honour both conditions on PutObject, and compare and write in
// one step. Amazon's S3 does since November 2024. A store that ignores them
// overwrites without an error, and then nothing is fenced: let [Bucket.Probe] find
// out, once, when the service starts.
//
// Do not let a lifecycle rule or a person delete or overwrite guarded objects:
// their registers would be gone.
package s3bucket
