// Package rwlock gives processes that share a Redis a read/write lock with a lease and a fencing token.
//
// A [Locker] takes locks by name. [Locker.Do] is for one critical section; [Locker.Lock] and its siblings return a
// [Lease] to hold, watch or pass on; [Locker.RWMutex] looks like sync.RWMutex: a lock of the process in front of one
// hold on Redis. Package reentrant nests acquisitions along a call chain, which is [ErrNested]
// here; package redlock takes the same locks from a quorum of masters.
//
// A lease is trusted until its deadline, which renewals in the background move on. When they fail, or when the masters
// have lost the hold, the lease ends: its [Lease.Context] is cancelled with a [*LostError] as the cause, before anybody
// else can be granted the lock. A process that was paused may notice only afterwards. The token covers that: give
// [Lease.Fence] to the storage and let it refuse whatever is older than it has seen (package fencing).
//
// Waiters are served in the order of their arrival, readers between two writers together. All waiters of a process for
// a lock cost its Redis one refresh per second. A waiter whose process does not listen any more is passed over.
//
// A client from [Dial] has one connection, and the locker can tell when it is replaced. Any other rueidis client works
// too, at more cost over a quorum.
package rwlock
