// Package fencing is the storage side of a distributed lock. It carries a lock's token from the holder to the service
// that stores the data, and it refuses a token that is out of date. It needs the standard library only, so a service
// that merely checks tokens does not depend on a Redis client.
//
// # Why
//
// No lock service can stop a holder that was paused, by a garbage collector, a suspended machine or a slow network,
// past the end of its lease. When it resumes, it writes as if it held the lock. Only the storage can detect this: each
// grant of a lock comes with a [Token]. The token of a write is greater than every token granted before it, and the
// token of a read is greater than that of every write before it. The storage refuses a token that is older than a token
// it has seen.
//
// # The rule
//
// Two registers per resource: the greatest token that has written (maxW) and the greatest that has read (maxR).
//
//	access    accepted while           raises
//	read      token >= maxW            maxR
//	write     token >= maxW and maxR   maxW
//	derived   token >= maxW            nothing
//
// An old writer is refused after a newer reader has read or a newer writer has written. An old reader is refused after
// a newer write. Concurrent readers never refuse each other. An equal token passes, because a holder may write more
// than once. A derived value is computed by a reader from data that it has read, such as a cache entry.
//
// The check, the raise and the access are one atomic step; a check followed by a separate write is a race. A holder
// that reads outside the guarded storage, or before its first guarded access, claims first: it raises the register to
// its own token. Otherwise an older write may land between its read and its write.
//
// # The pieces
//
//   - [Fence] names the resource, the token and the mode; it travels in a context ([NewContext], [FromContext]) and
//     between processes ([Inject], [Extract]).
//   - [Registers] is the rule itself; a [Guard] applies it to a storage.
//   - [Watermark] is the Guard for data in the memory of one process.
//
// The packages below this one guard HTTP routes, gRPC methods, Redis, SQL databases and object stores.
package fencing
