// Package redisguard keeps stale writes out of data in Redis: it checks a fence and does the access in one script call,
// so no other access intervenes. It works on one master and on a Cluster.
//
// The registers of a resource are stored with the data, in a hash with the hash tag of the data's key in its name, so
// both are in one slot: for the resource "orders/42" and the key "order:{42}:state" it is "fencing:{42}:orders/42".
// Data of one resource under several tags has registers under each of them; claim each.
//
// A client that writes these keys without this package is not checked.
//
// # Retrying
//
// An error that matches [fencing.ErrStale], [fencing.ErrMissing], [fencing.ErrMalformed] or [ErrEvicts] guarantees that
// nothing was done. After any other error, such as a timeout, the access may have been done, or may still be done: even
// after a later access of the same holder, because both have the same token. So repeat it before going on to the next
// access, or give up the lock.
//
// # Memory
//
// An evicted register would let the next stale token pass. So if a resource has no register, the server's
// maxmemory-policy must exclude its eviction: any policy but allkeys-* without [WithRegisterTTL], noeviction with it.
// Otherwise the access is refused with [ErrEvicts].
//
// A server that has reached maxmemory refuses what needs memory: [Guard.Set], [Guard.HSet], [Guard.Derive], and a
// script of [Guard.Do] while its register has to rise. A new holder still reads, deletes and claims, and no register
// has to rise after it has claimed.
//
// # Limits
//
// It is not a [fencing.Guard] for storage elsewhere: a check in Redis and a write in another place are two steps, and a
// pause fits between them. Replication of Redis is asynchronous: after a failover, the registers may be as old as the
// data. A replica serves no access at all, because each may have to write.
package redisguard
