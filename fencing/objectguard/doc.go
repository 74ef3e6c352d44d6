// Package objectguard makes an object store refuse the writes of a lock holder
// that was paused for too long. It needs the standard library and a [Bucket]: an
// object store that can write on condition that the object has not changed since.
// S3 can (If-Match and If-None-Match on PUT), and so can Google Cloud Storage
// (generations) and Azure (ETags). The package s3bucket, a module of its own, is
// the Bucket for S3.
//
// # How
//
// A [Guard] keeps the two registers of package fencing inside the object, in a
// line of JSON before the data:
//
//	{"fencing":1,"lock":"orders/42","max_write":"34","max_read":"33","id":"..."}
//
// Each access gets the object, checks the fence against its registers and writes
// the object with the register raised and the new data, if it is still the one
// that was read. If it is not, somebody else's access came in between, and the
// guard begins anew. So check, raise and write are one atomic step, and a stale
// holder is refused however late its request arrives.
//
// A write that the store does not answer, or answers with a failure of its own, is
// sent again: with the same id and under the same condition, so that at most one of
// the requests takes effect. The id in the object tells whether one did.
//
// The registers cannot be kept in the object's metadata: S3's ETag is a digest of the
// content alone. If a newer holder writes the same content again the ETag is what
// it was, and the condition of a stale holder holds. Hence the id, which is random
// for each write: no two writes have the same content.
//
// # What it costs
//
// A write is one GET and one conditional PUT; a read is the same, but one GET
// alone where its register is raised already. Whatever the access, the whole
// object travels: guard small ones. Large data goes, without a guard, into an
// object of its own under a name that nobody uses twice, made of the token and a
// number, and the guarded object says which one is valid.
//
// An object belongs to the lock whose holder first wrote it, because tokens of
// different locks cannot be compared. An object that was there before is taken over
// with [Guard.Adopt]. What the store keeps beside the content, such as its type,
// stays as it was.
//
// All writers must use this package; whoever reads without it, and without a lock,
// takes the data off with [Open].
package objectguard
