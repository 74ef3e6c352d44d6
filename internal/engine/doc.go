// Package engine keeps the leases of one locker: it asks the masters for holds, waits, renews and releases. A single
// master is the case N = 1 of the same code.
//
// # Parts
//
//	Engine              joins the parts, and calls the masters through them
//	  registry          the leases by hold id, for the messages that name a hold
//	  tokens            the token floor to propose to scripts
//	  waitSets          the locks that this process waits for on one master, and their refreshes
//	    crowd           the waiters for one lock: the nearest, and the waiters behind them
//	  pendingReleases   background releases of one master, in a releaseQueue for each server
//	    recentReleases  the confirmed ones, in case another server takes the place of the server that confirmed
//	  leaving           releases that no caller waits for; single attempts for the lock wait for their answers
//	  outages           servers that do not answer waiters or renewals, and when each is reported next
//	  evictions         servers that may have evicted a hold, each asked once for its policy
//	  observers         the user's hooks and logger
//	Lease               the handle of a hold, and the trust in it once it is granted
//	  voting            the hold and the masters' votes on it; sends what the ballot asks for, and the release
//	    hold            one attempt at the lock, as the masters know it
//	    acquisition     asks and waits, until the hold is granted or given up
//	    withdrawal      reports when the masters have released a conversion that was given up
//	  renewal           when the lease is extended, and the round under way
//	  doneState         notifies the subscribers to the lease's end
//
// Packages that can be read and tested alone are below it: ballot (decides one hold from the votes of its masters),
// masterset (whether the masters are one usable set), transport (script calls, messages, and everything that concerns
// rueidis), clock (every deadline), timerqueue (every timer of an engine, on one goroutine) and events (runs the user's
// loggers and hooks, on a goroutine that nothing depends on).
//
// # Goroutines and lock order
//
// An engine has 1 + N goroutines for any number of leases: one for the timers and one for each master's pipeline. With
// waiters each master that is listened to adds one. A master that is more than one server adds one that watches which
// servers these are, and a Cluster has a pipeline and a listener for each server that owns slots.
//
// A lease has one mutex, the guard of its voting, which also guards its acquisition, renewal and doneState. No mutex is
// held over a network call. Mutexes are taken in this order: lease; wait sets or pending releases; registry, tasks,
// pipeline or timer queue.
//
// # The life of a hold
//
//	                 reply, message or refresh: granted by a quorum
//	      Acquire  +--------+       with one token, and in time         +------+  renewed: a new deadline
//	    ---------->| asking |------------------------------------------>| held |<----+
//	               +--------+                                           +------+-----+
//	                   |  |  ^                                            |  |
//	ctx ends, closed,  |  |  | granted too late, or no common token:      |  | deadline, MaxHold, a quorum says gone
//	Try refused,       |  +--+ a new hold id                              |  +------------------------+
//	masters refuse     |                                                  | Release, Close             |
//	                   v                                                  v                            v
//	              failed: *Failure                                 ended: ErrReleased           ended: *Loss
//
// Every exit from asking or held releases the hold on each master that may have it. The ballot's vote is what is known
// of the hold on a master. It changes only by that master's replies and messages, and after each change decide acts on
// the verdict.
//
// Lock: Acquire, askDirectly (one post for each of several masters), transport.Master.Do, answered, Vote.Answered,
// decide, succeed, begin. If the hold is queued: enqueue, and await until a message or a refresh brings the grant.
//
// Hand-off: the listener calls onMessage, handedOff (trusted if the message is from the very server with the known
// clock; otherwise the waiter asks), Vote.Granted, decide, succeed, begin; await returns.
//
// Loss: the timer queue calls Fire, expire, lose, finish, fire. The contexts of the lease end, the rest is released.
//
// # The trust window
//
// A server counts a TTL from the moment it runs the script, which is some time after the request was sent. So trust
// ends at (sent + TTL - drift), computed in clock.Drift.Trusted and nowhere else, on the monotonic and on the wall
// clock: the first stands still while a machine is suspended, the second may be set back. (Set forward, it ends the
// lease early.) A request that a server did not run because it did not know the script does not count: trust starts
// when the script is sent whole. The timers end the lease on time regardless of calls under way, and Err reads the
// clocks itself. With several masters each vote has its own trust, and the deadline is the end of the longest trusted
// quorum.
//
// A hand-off is granted without a request. Its message names the server's time of the grant. By the waiter's last reply
// the server's clock read at most s when that request was sent. Now it reads at most s + (1 + drift) x (time since, by
// the clock that ran further), so at least TTL - (that - granted) is left. A hand-off lasts only for the hand-off TTL,
// min(TTL, 3 s), until the first renewal confirms it.
//
// # Renewals
//
// A lease is renewed at a third of its time. All renewals that are due on a master in one tick go out in one script
// call, the first to expire first, without expired ones. A failed or unanswered renewal leaves the deadline and is
// tried again after an eighth of the trust that is left, so there is always time for another; a backoff does not delay
// it. When a quorum has just confirmed a hold, a master that lost it is asked to take it back.
//
// # Waiting
//
// A waiter is a short lease in the masters' queue. A script that makes room grants the lock to the head of the queue
// and publishes one message to its process. If the message has no receiver, the lock passes on at once. Messages are
// hints. Each process refreshes its waiters for a lock together, three times in a waiter's lease; the reply reports
// grants with a lost message, waiters that the server lost, and the time of the next expiry. After a new subscription
// all waiters ask. A message that comes before the reply that the hold is queued is remembered.
//
// Of a crowd a refresh names only the nearest waiters: to name 100,000 would take three quarters of a server's time.
// The waiters behind have their places in the queue too, so the order is the same. They live by one lease of the
// process, which each refresh renews, and the master is asked for their state when they have become the nearest. If
// that lease has lapsed they are reported again, and ask again if their places are gone. One call for a lock is under
// way at a time, so a crowd takes turns with other names. When a whole crowd gives up, the holds with releases that
// cannot be sent at once are released together.
//
// # Shared holds
//
// A shared hold is marked in its details. A shared write is granted a token block: it begins with the token that any
// other grant would get, has the size that was asked for, and ends at most a second ahead of the master's clock. With
// several masters a client asks for less before that limit, by what it knows of their clocks, since each would cut the
// block off at its own. Each master reports where its block begins; the lease may use the tokens from the largest of
// these on. Raises, renewals and releases name the last token, which is the counter. The first waiter behind a shared
// hold causes one message to its process; the answer to a renewal reports the waiter too, and a new subscription renews
// at once, in case that message was lost. The order within the process is the matter of rwlock.RWMutex.
//
// # Conversions
//
// A conversion is another hold, which names the hold that it replaces and does not wait for it. When a quorum has
// granted it, and the old hold has stood all that time by its own deadline, the lease goes over to the new hold and the
// old one is released. If that release finds that the old hold was gone before its time, the lease is lost. So there is
// no gap, and a caller that gives up keeps what it had. A lease under which goroutines of the process read goes over
// only when all of them but one have left.
//
// An upgrade among other readers waits at the head of the queue. A master that has one refuses a second: two that
// waited for each other on different masters would wait for ever. It also refuses a sidelined upgrade that comes back
// after another came, since it is now the second. A conversion is granted next to abandoned conversions of the same
// hold, and next to the hold from which that one was converted: their releases may be late. A waiting upgrade is itself
// a waiter for its lease, so other waiters are asked for once an upgrade that is given up is released.
//
// # What is not known
//
// A request without a reply may have run, or may still run. Its hold is released in the background until a master
// replies or the hold must have expired. If the connection broke, its buffers may deliver the acquire after the
// release. So the release leaves a tombstone for a late acquire or regain of that hold to find. Calls of one hold need
// no order.
//
// # What fails, and what follows
//
//	a request has no answer     the verdict goes on without that master after the node timeout; its answer counts when it
//	                            comes; the release leaves a tombstone
//	a grant comes too late      it is released, and a new hold asks, a few times for a single attempt
//	a message is lost           the next refresh reports the grant; until then the lock is held for the hand-off TTL
//	a message comes twice       its token is no later one, and it is ignored
//	a raise is refused          the master is outvoted: it has the hold, and does not count
//	a renewal says "gone"       the master is outvoted; without a quorum the lease is lost, with one it is regained
//	a release has no answer     it goes on in the background, with a backoff per server, until the hold must have expired
//	this process stands still   a call on the lease reads the clocks first; a loss is noticed then, or by the timer
//	a server has lost its data  of several masters it abstains for the quarantine; a single one has its clock as the
//	                            token floor, and what it had granted is not excluded any more
//	another server answers      waiters ask, recent releases are repeated, and hand-offs of the old one are not trusted
//	the scripts are unknown     they are sent whole, once; of several masters the run id is compared then
//	a hook blocks               events wait, then are dropped and counted; no lease waits for them
//
// # Replicas
//
// If replicas are asked for, every call that makes or keeps a lease goes out with WAIT behind it, and counts only once
// so many replicas of the master have it (handoff.go). A renewal without WAIT would move the deadline past the expiry
// that a replica knows: the promoted replica would let other clients in while the lease is trusted. A grant from the
// queue was written by another process, so the waiter renews it first (granted, confirmed): WAIT behind this later
// write on the same server covers both. A grant that replicas do not confirm is released there, and the acquisition
// fails if too many masters are like that. Later requests wait until the master's replicas have caught up.
//
// # Several masters
//
// All are asked at once. The verdict falls as soon as it is certain, and after the node timeout without the masters
// that have not answered; later answers still count. Contenders queue by hold id, which all masters order alike. When
// votes are split, contenders without a quorum yield their grants to an older hold that waits behind them; the oldest
// keeps its grants, so one more round settles it. An upgrade comes before all of them and never yields. The holds in
// its way end: with a quorum they leave, a single attempt without one gives up, and the grants of a dead client expire.
//
// A master that may have lost leases abstains for the quarantine, and one that is not in order has no vote. Package
// masterset finds both by the master's marker. vote.lua alone decides whether a master votes. A script that lets a
// waiter in without granting its client a hold (a release, a refresh, an expiry) follows it too, and makes the client
// look at the marker.
//
// # Glossary
//
//	hold           one acquisition on the masters, named by a ULID
//	lease          the client's side of a granted hold
//	owner          the ULID under which holds can be joined: named by the caller, or the hold's id
//	round          one request to all masters and their answers
//	hand-off       a release, or a script that finds an expiry, grants the lock to the next waiter by a message
//	contended      a waiter elsewhere wants a lock that goroutines share
//	token floor    the smallest token that a script may mint
//	token block    consecutive tokens of one write grant, for the goroutines of a shared hold
//	sidelined      a waiter that was passed over, since its process did not receive a hand-off
//	tombstone      mark of a hold that was released before its acquire arrived
//	conversion     an upgrade or a downgrade
//	quarantine     the time in which a master that may have lost data does not vote
//	shared hold    a hold that the goroutines of a process share; identifiers call it a cohort
//	local queue    the FIFO of one process's goroutines
package engine
