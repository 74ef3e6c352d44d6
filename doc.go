// Package fencelock documents a distributed read/write lock on Redis. Every grant carries a fencing token. The package
// has no code: import one of the packages below it.
//
// Every lock with a timeout can fail in one way that no server prevents: the holder is paused, its lease expires,
// another client gets the lock, and then the first holder resumes and writes. So a lock alone does not suffice. Here
// each grant has a number, the token, which orders it against the writes before it. The work carries the token to the
// storage in its context, and the storage refuses an access with an older token than it has already seen.
//
// # Which form for which use
//
//	locker.Do(ctx, name, fn)           one critical section; start here
//	locker.Lock, then lease.Release    long holds, explicit control
//	locker.RWMutex(name)               a sync.RWMutex across processes
//	reentrant.New(locker)              sections that nest along a call chain
//	redlock.New(masters)               the same locker over a quorum of independent masters
//	ticks                              a job once per tick, in one of many processes
//	fencing                            the service that stores the data and checks tokens
//
// Package lockdebug serves a page about the locks of one process.
//
// Every form but the last two ends in a lease of package rwlock. The context given to an acquisition bounds only the
// wait. The work runs under the lease's own context, which carries the fence and is cancelled, with the cause, when the
// lease ends. Do passes that context to its function.
//
// # What is promised
//
// One writer or many readers at a time, as long as the clocks of clients and servers run at similar rates and the
// masters (a quorum of them, if there are several) keep their data.
//
// On one Redis every grant's token is larger than all earlier tokens of that lock. Over a quorum a writer's token is
// larger than every earlier token, and a reader's token is larger than the token of every earlier write; two readers
// may share one. This also holds after a loss of data, an expiry of the counter, or a failover that rolled it back: new
// tokens then start from the server's clock. Nested acquisitions have the token of the outer acquisition.
//
// While its process runs and the masters keep their data, a lease's context ends before another client can be granted
// the lock. The client counts the TTL from before it sent the request, the server from after it received it, and a
// local timer ends the lease without a request. After lost data it ends with the next renewal. A paused process notices
// the loss when it runs again. Inside a process the exclusion of an RWMutex does not depend on Redis at all.
//
// A crashed holder blocks the lock for at most its TTL. A crashed reader neither shortens nor prolongs other holds. A
// crashed waiter keeps its place for 3 s at most, and a hand-off to it lasts 3 s at most.
//
// On one master waiters are served in the order of their arrival: writers one by one, neighbouring readers together.
// Independent masters all keep the same order, to within about 0.1 s.
//
// # What is not promised
//
// Exclusion when a server's clock is set forward: this ends the server's holds early. Slew the clocks instead.
//
// Exclusion while a holder is paused. A process may be suspended between its last check of the context and its write.
// The token covers that: let the storage check it, in one atomic step with the access, or do not rely on the lock for
// correctness.
//
// That your code stops. fencelock cancels its context, and code that ignores the context keeps running after the lease
// has ended.
//
// Increasing tokens in three cases. (1) A Redis has lost its data, or has dropped the counter of a lock that was unused
// for an hour, and its clock was set back past the lock's last token. (2) A failover loses the last grants, and the new
// master's clock is behind the last token, or both masters granted the lock for a moment, as after SENTINEL FAILOVER.
// (3) A single master loses its data while the tokens of an RWMutex run ahead of its clock: by at most 1 s.
//
// An order among reads over a quorum. A later read may have a smaller token than an earlier read.
//
// Anything on a server that evicts keys: run it with the noeviction policy.
//
// Fairness to a client whose link is down. Its place in the queue expires, and it queues again at the end.
//
// # What the storage has to do
//
// It keeps two registers per resource: the largest token that wrote and the largest token that read. A read passes
// unless a newer writer has accessed the resource. A write passes unless a newer writer or a newer reader has. Package
// fencing has the check in memory and the types that carry tokens through contexts and headers. It depends only on the
// standard library.
//
// # Where to read on
//
// Package [github.com/seed74116694/fencelock/rwlock] has the locker, its options and its errors;
// [github.com/seed74116694/fencelock/reentrant] defines owners; [github.com/seed74116694/fencelock/fencing] is for the
// service that stores the data. internal/engine describes the life of a lease.
package fencelock
