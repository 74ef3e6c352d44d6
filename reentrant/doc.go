// Package reentrant nests acquisitions of a lock along a call chain: code that holds a lock may call code that takes
// the same lock again.
//
// Go has no thread that could own a lock, so the owner is said: one logical thread of control, put into the context at
// the edge with [WithOwner] and passed on from there. An acquisition without an owner in its context is [ErrNoOwner],
// never a deadlock.
//
// # What a nested acquisition does
//
// The first acquisition of a lock by an owner takes it from the masters and gets a lease. Those nested in it count on
// that lease, without a command: the lease's own deadline proves that the lock is still held. They have its token and
// its terms; options given to a nested acquisition say how a lock is to be taken, and nothing is taken, so they have no
// effect. In particular nothing adds up: a crashed holder blocks the others for one TTL, however deep it was.
//
//	outer, nested   result
//	write, write    counts
//	write, read     counts, on the write lock
//	read, read      counts, also while a writer waits: it waits for the outer section, so it has to wait anyway
//	read, write     upgrades: the hold is a write hold from then on, also for the outer section, with a new token
//
// An upgrade is that of [rwlock.Lease.Upgrade]: it waits for the other readers to leave, for as long as its ctx and the
// WithMaxWait of the outermost acquisition let it, and costs what taking a lock does. Where another reader is
// upgrading, and in another process acting for the owner, it is rwlock.ErrUpgrade at once.
//
// If the lease of the outer section is lost, a nested acquisition fails with that *rwlock.LostError until the outer
// hold is released: taking the lock anew would let the outer section go on under a lock that it no longer has.
//
// Holds are released in the opposite order, for each owner and lock. Another order is [ErrOrder] and changes nothing.
// The last release gives the lock back. The end of a [Locker.Do] ends what nests in its hold as well, and reports it.
//
// # In another process
//
// The owner travels beside the fence: fencing.Inject and the transports of httpfence and grpcfence send it, and
// fencing.Extract and their middlewares put it into the context there, so the other process needs no code for it. Where
// it comes by another way, as text, [AsOwner] does that. The first acquisition of a lock in that process then joins the
// hold that the owner has on the masters: one command, a count of two in [rwlock.Locker.Inspect], the same token. A
// joined hold has an expiry and a renewal of its own, so it keeps the lock also when the outer one ends first.
//
// What if the owner holds nothing? It depends on what the caller has claimed. A context that carries a fence of that
// lock says that the work is part of a section that holds it; if the owner has no hold with that token on the masters,
// the section has lost its lock, and the acquisition is a *rwlock.LostError. The owner may have other holds of the lock
// beside it, such as those of two services that read independently: each is joined by its own token. Without a fence
// nothing was claimed: code in the second process may need further locks, and takes them for the owner in the ordinary
// way.
//
// # Goroutines
//
// Two goroutines with one owner are both inside: nothing keeps one from the other's section. Give each its own owner
// with [Fork]. Where that was forgotten nothing is corrupted, though. There is one lease, a first acquisition that is
// under way is waited for within the context (TryLock and TryRLock do not wait), and whoever releases a hold that is
// not the innermost gets ErrOrder and keeps it.
package reentrant
