// Package redisguard keeps stale writes out of data in Redis: it checks a fence
// and does the access in one script call, so nothing comes in between. It works
// on one master and on a Cluster.
//
// The registers of a resource are stored beside the data, in a hash whose name has the
// hash tag of the data's key, so both are in one slot: for the resource "orders/42"
// and the key "order:{42}:state" it is "fencing:{42}:orders/42". Data of one
// resource under several tags has registers under each of them; claim each.
//
// Whoever else writes these keys, without this package, is not checked.
//
// # Retrying
//
// An error that matches [fencing.ErrStale], [fencing.ErrMissing],
// [fencing.ErrMalformed] or [ErrEvicts] says that nothing was done. After any other, such as a
// timeout, the access may have been done, or may be done yet: even after a later
// access of the same holder, whose token is the same. So repeat it before going on
// to the next, or give up the lock.
//
// # Memory
//
// A register that was evicted would let the next stale token pass. So where a
// resource has no register, the server's maxmemory-policy must spare it: any but
// allkeys-* without [WithRegisterTTL], noeviction with it. Otherwise the access is
// refused with [ErrEvicts].
//
// A server that has reached maxmemory refuses what needs memory, such as
// [Guard.Set], and still does the rest for a new holder: it reads, claims and
// deletes.
//
// # What it does not do
//
// It is no [fencing.Guard] for storage elsewhere: a check in Redis and a write in
// another place are two steps, and a pause fits between them. Replication of
// Redis is asynchronous: after a failover, registers may be as old as the data
// beside them. A replica does no access at all, since each may have to write.
package redisguard
