// Package rwlock gives processes that share a Redis a read/write lock with a lease and a fencing token.
//
// A [Locker] takes locks by name. [Locker.Do] runs one critical section. [Locker.Lock] and its siblings return a
// [Lease] to hold, watch or pass on. [Locker.RWMutex] has the methods of sync.RWMutex by name, each with a context and
// an error: the goroutines of a process share one hold on Redis. An acquisition inside a section under the same lock is
// [ErrNested] here; package reentrant nests acquisitions along a call chain. [Locker.DoAll] and [Locker.LockAll] take
// several locks, each for reading or for writing, all or none, without a deadlock. [Lease.Detach] and [Locker.Adopt]
// hand a lock to another process. Package redlock takes the same locks from a quorum of masters.
//
// A lease is trusted until its deadline. Renewals in the background extend it. When they fail, or when the masters have
// lost the hold, the lease ends: its [Lease.Context] is cancelled with a [*LostError] as the cause. While the masters
// keep their data, that is before another client can be granted the lock. A process that was paused may notice the loss
// only afterwards. The token covers both cases: give [Lease.Fence] to the storage and let it refuse an access with an
// older token than it has seen (package fencing).
//
// Waiters are served in the order of their arrival, and readers between two writers enter together. All waiters of a
// process for a lock cost its Redis one refresh per second. A waiter whose process no longer listens is passed over.
//
// [Locker.Leases] shows what this process holds and waits for, [Locker.Losses] what it has lost, and [Locker.Inspect]
// one lock as its servers see it. [Locker.Stats] counts, and [WithTrace] reports events.
//
// A client from [Dial] has one connection, and the locker can see when that connection is replaced. Any other rueidis
// client works too, at a higher cost over a quorum.
package rwlock
