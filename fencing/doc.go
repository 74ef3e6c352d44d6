// Package fencing is the storage side of a distributed lock: it carries a
// lock's token from its holder to whatever stores the data, and it refuses a
// token that is out of date. It needs the standard library only, so a service
// that merely checks tokens does not take on a Redis client.
//
// # Why
//
// No lock service can stop a holder that was paused, by a garbage collector, a
// suspended machine or a slow network, past the end of its lease. When it wakes
// up, it writes as if it held the lock. Only the storage can tell: each grant of
// a lock comes with a [Token] that is greater than that of every write before
// it, and a write's is greater than every reader's before it too. The storage
// refuses a token that is older than one it has seen.
//
// # The rule
//
// Two registers per resource: the greatest token that has written (maxW) and the
// greatest that has read (maxR).
//
//	access    accepted while           raises
//	read      token >= maxW            maxR
//	write     token >= maxW and maxR   maxW
//	derived   token >= maxW            nothing
//
// So a writer from before is refused once a newer reader has read or a newer
// writer has written, a reader from before a newer write is refused, and
// concurrent readers never fence each other off. An equal token passes, since a
// holder writes more than once. A derived value is what a reader computes from
// what it has read, such as a cache entry.
//
// Check, raise and access are one atomic step; a check followed by a separate
// write is a race. A holder that reads outside the guarded storage, or before
// its first guarded access, claims first: it raises the register to its own
// token. Otherwise an older write may land between its read and its write.
//
// # The pieces
//
//   - [Fence] names the resource, the token and the mode; it travels in a
//     context ([NewContext], [FromContext]) and between processes ([Inject],
//     [Extract]).
//   - [Registers] is the rule itself; [Guard] is what applies it to a storage.
//   - [Watermark] is the Guard for what one process keeps in memory.
//
// The packages beside this one guard HTTP routes, gRPC methods, Redis, SQL
// databases and object stores.
package fencing
