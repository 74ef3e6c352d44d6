// Package fencelock documents a distributed read/write lock on Redis. Every grant carries a fencing token. The package
// holds no code: import one of the packages below it.
//
// Every lock with a timeout can fail in one way that no server prevents: the holder is paused, its lease expires,
// somebody else gets the lock, and then the first holder wakes up and writes. So a lock is only half of the answer.
// Here each grant has a number, the token, which orders it against the writes before it. The work carries the token to
// the storage in its context, and the storage refuses what is older than what it has already seen.
//
// # Which form for whom
//
//	locker.Do(ctx, name, fn)           one critical section; start here
//	locker.Lock, then lease.Release    long holds, explicit control
//	locker.RWMutex(name)               a sync.RWMutex across processes
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
// On one Redis every grant's token is larger than all tokens of that lock before it. Over a quorum a write's token is
// larger than every token before it, and a read's token is larger than that of every write before it; two readers may
// share one. The same after lost data, where the counter expired, or where a failover rolled it back: new tokens then
// start from the server's clock. Nested acquisitions have the token of the outer one.
//
// While its process runs, a lease's context ends before anybody else can be granted the lock. The client counts from
// before it sent the request, the server from after it came, and a local timer ends the lease without asking the
// network. A paused process notices the loss when it runs again. Inside a process the exclusion of an RWMutex does not
// depend on Redis at all.
//
// A holder that crashed is in the way for at most its TTL; a crashed reader neither shortens nor prolongs the holds of
// others. A waiter that crashed keeps its place for 3 s at most, and a hand-off to it lasts 3 s at most.
//
// On one master waiters are served in the order in which they came: writers one by one, neighbouring readers together.
// Independent masters all keep the same order, to within the skew of the clients' clocks.
//
// # What is not promised
//
// Exclusion when a server's clock is set forward: it ends that server's holds early. Let the clocks be slewed.
//
// Exclusion while a holder is paused. A process may be suspended between its last look at the context and its write.
// The token covers that: let the storage check it, in one atomic step with the access, or do not rely on the lock for
// correctness.
//
// That your code stops. fencelock cancels its context, and code that ignores the context keeps running after the lease
// has ended.
//
// Increasing tokens in four cases. (1) A Redis has lost its data, or has dropped the counter of a lock that nobody used
// for an hour, and its clock was set back past the lock's last token. (2) A failover loses the last grants, and the new
// master's clock is behind the last token, or both masters granted the lock for a moment, as after SENTINEL FAILOVER.
// (3) A single master loses its data while the tokens of an RWMutex run ahead of its clock: by at most 1 s. (4) All
// masters of a quorum are flushed at once, and the lock is taken again within a second: by at most 1 s.
//
// An order among reads over a quorum. A later read may have a smaller token than an earlier one.
//
// Anything on a server that evicts keys: run it with the noeviction policy.
//
// Fairness to a client whose link is down. Its place in the queue expires, and it queues again at the end.
//
// # What the storage has to do
//
// It keeps two registers per resource: the largest token that wrote and the largest that read. A read passes unless a
// newer writer has been there; a write passes unless a newer writer or a newer reader has. Package fencing has the
// check in memory, the types that carry tokens through contexts and headers, and depends on the standard library only.
//
// # Where to read on
//
// Package [github.com/seed74116694/fencelock/rwlock] has the locker, its options and its errors;
// [github.com/seed74116694/fencelock/reentrant] says who an owner is;
// [github.com/seed74116694/fencelock/fencing] is for the service that stores the data. internal/engine describes the
// life of a lease.
package fencelock
