// Package fencelock is the front page of a distributed read-write lock on Redis whose every grant carries a fencing
// token. The package holds no code; what you import lies below it.
//
// A lock with a time limit can fail in one way that no server prevents: the holder is paused, its time runs out,
// another gets the lock, and then the first wakes up and writes. So a lock is only half of the answer. Here each grant
// has a number, the token, larger than every earlier one of that lock. The work carries it to the storage in its
// context, and the storage refuses what is older than what it has already seen.
//
// # Which form for whom
//
//	locker.Do(ctx, name, fn)           one critical section; start here
//	locker.Lock, then lease.Release    long holds, explicit control
//	locker.RWMutex(name)               in the place of a sync.RWMutex, across processes
//	reentrant.New(locker)              sections that nest along a call chain
//	redlock.New(masters)               the same locker over a quorum of independent masters
//	fencing                            the service that stores the data and checks tokens
//
// Every form but the last ends in a lease of package rwlock. The context given to an acquisition bounds the waiting
// and nothing else; the work runs under the lease's own context, which carries the fence and is cancelled, with the
// cause, when the lease ends. Do passes that context to its function.
//
// # What is promised
//
// One writer or many readers at a time, as long as the clocks of clients and servers run at similar rates and the
// masters (a quorum of them, if there are several) keep their data.
//
// Tokens of a lock strictly increase, also when its data is lost: where the counter expired, was flushed or was rolled
// back by a failover, it goes forward from the server's clock. Readers get tokens as well. Nested acquisitions share
// that of the outer one.
//
// A lease's context ends before anybody else can be granted the lock. The client counts from before it sent the
// request, the server from after it came, and a local timer ends the lease without asking the network.
//
// A holder that crashed is in the way for at most its TTL, a crashed reader without shortening or prolonging the
// holds of the others. A waiter that crashed drops out of the queue.
//
// On one master those who wait are served in the order in which they came: writers one by one, neighbouring readers
// together. Independent masters all keep the same order, to within the skew of the clients' clocks.
//
// # What is not promised
//
// Exclusion when a server's clock is set forward: it ends that server's holds early. Let the clocks be slewed.
//
// Exclusion across pauses of any length. A process may be suspended between its last look at the context and its
// write. That is the token's part: let the storage check it, in one atomic step with the access, or do not rely on the
// lock for correctness.
//
// That work stops. A context can only ask; code that does not look at it goes on after the lease has ended.
//
// Increasing tokens when a lock's data is lost and, at the same time, the servers' clocks step back by more than the
// time since its last grant.
//
// Anything on a server that evicts keys: run it with the noeviction policy.
//
// Fairness towards a client whose link is down. Its place in the queue lapses, and it queues again from the end.
//
// # What the storage has to do
//
// It keeps two registers a resource: the largest token that wrote and the largest that read. A read passes unless a
// newer writer has been there; a write passes unless a newer writer or a newer reader has. Package fencing has the
// check in memory, the types that carry tokens through contexts and headers, and depends on the standard library only.
//
// # Where to read on
//
// Package [github.com/seed74116694/fencelock/rwlock] has the locker, its options and its errors;
// [github.com/seed74116694/fencelock/reentrant] says who an owner is;
// [github.com/seed74116694/fencelock/fencing] is for the other side. How a lease lives and dies is told in internal/engine.
package fencelock
