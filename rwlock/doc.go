// Package rwlock gives processes that share a Redis a read/write lock with a lease and a fencing token.
//
// A [Locker] takes locks by name. [Locker.Do] is for one critical section; [Locker.Lock] and its siblings return a
// [Lease] for those who want to hold, hand on or watch it; [Locker.RWMutex] looks like sync.RWMutex: a lock of the
// process in front of one hold on Redis. Package reentrant nests acquisitions along a call chain, which is [ErrNested]
// here; package redlock takes the same locks from a quorum of masters.
//
// A lease is trusted until its deadline, which a renewal in the background moves on. When it cannot, or when the
// masters have given the lock to somebody else, the lease ends: its [Lease.Context] is cancelled with a [*LostError]
// as the cause, before anybody else can be let in. A process that was paused may notice only afterwards, and for that
// it has the token: hand [Lease.Fence] to the storage and let it refuse whatever is older than it has seen (package
// fencing).
//
// Waiters are served in the order of their arrival, readers between two writers together, and a waiter costs its
// Redis nothing but one refresh a second for each process and lock.
package rwlock
