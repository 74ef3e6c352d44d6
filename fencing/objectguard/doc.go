// Package objectguard makes an object store refuse the writes of a lock holder that was paused for too long. It needs
// the standard library and a [Bucket]: an object store that can write on condition that the object has not changed
// since. S3 can (If-Match and If-None-Match on PUT), and so can Google Cloud Storage (generations) and Azure (ETags).
// The package s3bucket, a separate module, is the Bucket for S3.
//
// # How
//
// A [Guard] keeps the two registers of package fencing inside the object, in a line of JSON before the data:
//
//	{"fencing":1,"lock":"orders/42","max_write":"34","max_read":"33","id":"..."}
//
// Each access gets the object, checks the fence against its registers and writes the object with the register raised
// and the new data, if the object is still the one it read. If it is not, another access intervened, and the guard
// begins anew. So check, raise and write are one atomic step, and a stale holder is refused however late its request
// arrives.
//
// If the store does not answer a write, or answers with a failure of its own, the write is sent again, with the same id
// and under the same condition, so that at most one of the requests takes effect. The id in the object shows whether
// one did.
//
// The registers cannot be kept in the object's metadata: S3's ETag is a digest of the content alone. If a newer holder
// writes the same content again, the ETag is unchanged, and the condition of a stale holder holds. Hence the id, which
// is random for each write: no two writes have the same content. An object has the ids of its last 32 writes, so that a
// write whose answer is missing, or that of a copy that a gateway has sent, finds out what became of it.
//
// # Cost
//
// A write is one GET and one conditional PUT. A read is the same, or one GET alone if its register is raised already.
// Every access transfers the whole object: guard small objects. Store large data without a guard, in a separate object
// under a name that is never reused, made of the token and a number, and let the guarded object name the valid one.
//
// An object belongs to the lock of the holder that wrote it first, because tokens of different locks cannot be
// compared. [Guard.Adopt] takes over an object that was there before. The properties that the store keeps in addition
// to the content, such as its type, are preserved.
//
// All writers must use this package. A reader that does not use it, and holds no lock, extracts the data with [Open].
package objectguard
