// Package engine keeps the leases of one locker: it asks the masters, waits, renews, and lets go. One master is the
// case N = 1 of the same code.
//
// # Parts
//
//	Engine       the registry of leases, by hold id; Close
//	Lease        one acquisition and, if it succeeds, the trust in it; a slot for each master
//	schedule     every moment that something is due at: one heap, one goroutine
//	master       one Redis: its backoff, its clock, its rooms
//	  lane       the script calls that nobody waits for: one goroutine, batch after batch
//	  room       the waiters of one lock on this master: refresh, early wake-ups
//	  subscription  the hand-off messages: one goroutine, from the first waiter on
//	cleanup      a release that goes on in the background
//	census       which masters a quorum consists of, and whether they may vote
//
// A caller's own requests, acquire and release, run in its goroutine, or with several masters in one goroutine each.
// Everything else is posted to a lane. So a locker has 1 + 2N goroutines however many leases it holds, and no mutex is
// ever held over a network call. Mutexes are taken in the order lease, master, engine or schedule.
//
// # A hold's life
//
//	                 answer, message or refresh: granted by a quorum
//	      Acquire  +---------+      with one token, and in time       +------+   renewed: a new deadline
//	    ---------->| asking  |--------------------------------------->| held |<----+
//	               +---------+                                        +------+-----+
//	                    |  |  ^                                          |  |
//	ctx ends, closed,   |  |  | granted too late, or no common token:    |  | deadline, MaxHold, a quorum says gone
//	Try refused,        |  +--+ a new hold id                            |  +------------------------+
//	masters refuse      |                                                | Release, Close             |
//	                    v                                                v                            v
//	               failed: *Failure                              ended: ErrReleased             ended: *Loss
//
// Whatever leaves asking or held releases the hold everywhere, a refused or unanswered one too. What a master knows of
// the hold (a slot's standing) changes by its answers only, and after every change decide draws the verdict.
//
// # The trust window
//
// A server counts a TTL from the moment it runs the script; the client does not know that moment, only that it came
// after the request was sent. So trust ends at (sent + TTL - drift), computed in drift.trusted and nowhere else, on the
// monotonic and on the wall clock: the first stands still while a machine is suspended, the second may be set back.
// The schedule ends the lease there, whatever any call is doing, and Err looks at the clocks itself.
//
// A hand-off is granted while nobody asks. Its message names the server's time of the grant; the waiter knows from its
// last answer that the server's clock read at most s when it sent the request, so it reads at most s + (1 + drift) x
// (time since) now, and at least TTL - (that - granted) is left. A hand-off lasts for the claim time only, min(TTL,
// 3 s), until the first renewal: a waiter that died holds up the queue no longer than that.
//
// # Waiting
//
// A waiter is a short lease in the masters' queue. Whoever makes room grants the lock to the head of the queue and
// publishes one message to its process. Messages are hints. Each process refreshes its waiters of a lock in one call,
// three times in a waiter's lease; the answer tells of grants whose message was lost, of waiters that the server lost,
// and when the next expiry is due, and then the room asks at that moment. A new subscription makes all rooms ask.
//
// # What is not known
//
// A request without an answer may have run, or may run yet. Its hold is released in the background until a master
// answers or it must have expired. If the connection broke, its buffers may deliver the acquire after the release; the
// release therefore leaves a tombstone for as long as the TTL, and a late acquire of that hold finds it.
//
// # Several masters
//
// All are asked at once and the verdict falls as soon as it is certain. The token is agreed on in Lease.agreed.
// Contenders queue by hold id, which all masters order alike. Where votes are split every contender without a quorum
// yields its grants to an older one that waits behind it (yield.lua); while the answer is out, the grant does not
// count. The oldest keeps its grants, so one more round settles it.
//
// A master that fails is left alone for 10 ms to 1 s. One that may have lost leases abstains (marker.lua): where the
// marker is missing, or where the server's run id changed. The latter is compared by every script that had to be sent
// whole, since a server that restarted has lost its script cache too.
package engine
