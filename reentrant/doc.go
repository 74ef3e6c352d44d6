// Package reentrant nests acquisitions of a lock along a call chain: code that holds a lock may call code that takes
// the same lock again.
//
// Go has no thread identity that could own a lock, so the caller names an owner: one logical thread of control, put
// into the context at the edge with [WithOwner] and passed on from there. An acquisition without an owner in its
// context is [ErrNoOwner], never a deadlock.
//
// # What a nested acquisition does
//
// The first acquisition of a lock by an owner takes it from the masters and gets a lease. Nested acquisitions share
// that lease, without a command: the lease's own deadline proves that the lock is still held. They have its token and
// its terms. Options of a nested acquisition have no effect, because options describe how a lock is acquired and a
// nested acquisition acquires nothing. In particular TTLs do not add up: a crashed holder blocks other clients for one
// TTL, at any depth.
//
//	outer, nested   result
//	write, write    shares the lease
//	write, read     shares the lease, for writing
//	read, read      shares the lease, also while a writer waits: the writer waits for the outer section anyway
//	read, write     upgrades: the hold is a write hold from then on, also for the outer section, with a new token
//
// An upgrade is an [rwlock.Lease.Upgrade]: it waits for the other readers to leave, within its ctx and the WithMaxWait
// of the outermost acquisition, and costs as much as an acquisition. If another reader is upgrading, or if the upgrade
// runs in another process that acts for the owner, it returns rwlock.ErrUpgrade at once.
//
// If the lease of the outer section is lost, a nested acquisition fails with that *rwlock.LostError until the outer
// hold is released: a new acquisition would let the outer section continue under a lock that it no longer has.
//
// Each owner releases its holds of a lock in the reverse order. Another order is [ErrOrder] and changes nothing. The
// last release gives the lock back. The end of a [Locker.Do] also ends every hold nested in its own, and reports it.
//
// # Several locks
//
// [Locker.LockAll] takes several locks, all or none, in whatever order the caller names them: it nests in those that
// the owner holds, takes the others together, and returns a hold of each. Unlike Lock it knows all of them before it
// waits, so it can promise that no callers wait for each other in a circle. The promise needs the outer sections too:
// where LockAll would have to wait for a lock while the owner holds a later one, in byte order of the names, it returns
// rwlock.ErrLockOrder. Take the locks of both sections together then, at the outer one.
//
// # In another process
//
// The owner is sent together with the fence: fencing.Inject and the transports of httpfence and grpcfence send it, and
// fencing.Extract and their middlewares put it into the context in the other process, which needs no code for it. If
// the owner arrives another way, as text, use [AsOwner]. The first acquisition of a lock in that process then joins the
// hold that the owner has on the masters: one command, a count of two in [rwlock.Locker.Inspect], the same token. A
// joined hold has an expiry and a renewal of its own, so it keeps the lock even if the outer hold ends first.
//
// If the owner has no hold on the masters, the result depends on the fence in the context. A context with a fence of
// that lock claims that the work is part of a section that holds the lock. If the owner has no hold with that token on
// the masters, the section has lost its lock, and the acquisition returns a *rwlock.LostError. The owner may have other
// holds of the lock as well, such as the holds of two services that read independently: each is joined by its own
// token. Without a fence there is no claim: code in the second process may need further locks, and takes them for the
// owner in the ordinary way.
//
// # Goroutines
//
// Two goroutines with one owner may be in the section at the same time: nothing excludes them from each other. Give
// each its own owner with [Fork]. If the program forgets this, the state of the lock stays correct: there is one lease;
// a goroutine waits within its context and WithMaxWait for a first acquisition that is in progress, and a single
// attempt does not wait; and a goroutine that releases a hold other than the innermost gets ErrOrder and keeps the
// hold. A LockAll that waits keeps nothing from the other goroutines but the lock that it waits for and what it has
// taken before that one. It nests in the holds of the owner once it has all other locks, so its failure ends no hold of
// another goroutine. If another goroutine has taken or released one of the locks meanwhile, LockAll begins again.
package reentrant
