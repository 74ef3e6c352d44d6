// Package engine keeps the leases of one locker: it asks the masters, waits, renews, and releases. One master is the
// case N = 1 of the same code.
//
// # Parts
//
//	Engine              joins the parts, and talks to the masters through them
//	  registry          the leases by hold id, so that messages find them
//	  tokens            what scripts mint tokens from
//	  mailbox           the messages of the masters, and what is done where they cannot be had
//	  membership        what the masters are, and whether they may be counted on together; each look is a survey
//	  waitSets          the locks that this process waits for on one master, and their refreshes
//	    crowd           the waiters of one of them: the nearest, and those behind
//	  pendingReleases   releases of one master that go on in the background, in a releaseQueue for each server
//	    recentReleases  those that were confirmed, in case that another server takes the place of the one that did
//	  leaving           locks that are being given back although nobody asked for that; single attempts wait for them
//	  observers         the user's hooks and logger
//	Lease               the handle of a hold, and the trust in it once it is granted
//	  voting            the hold and the masters' votes on it; sends what the ballot asks for, and the release
//	    hold            one attempt at the lock, as the masters know it
//	    acquisition     asks and waits, until the hold is granted or given up
//	    withdrawal      tells when the masters have let go of a conversion that was given up
//	  renewal           when the lease is extended, and the round under way
//	  ending            tells whoever asked for it that the lease has ended
//
// It stands on packages that can be read and tested alone:
//
//	ballot      decides one hold from the votes of its masters: pure, no clock, no network, no lock
//	transport   carries script calls to a master and its messages back; everything that concerns rueidis
//	clock       reads both clocks and computes every deadline
//	timerqueue  fires every timer of an engine from one goroutine
//	events      runs the user's loggers and trace functions, on a goroutine that nothing depends on
//
// An engine has 1 + N goroutines however many leases it holds: one for the timers and one for each master's pipeline;
// with waiters one more for each master that is listened to. A master that is more than one server has one that watches
// which they are, and a Cluster a pipeline and a listener for each server that owns slots. A lease has one mutex, the
// guard of its voting, which also guards its acquisition, renewal and ending. No mutex is held over a network call.
// Mutexes are taken in the order lease; wait sets or pending releases; registry, tasks, mailbox, pipeline or timer
// queue.
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
// Whatever leaves asking or held releases the hold on every master that may have it. What is known of the hold on a
// master is the ballot's vote; it changes by that master's replies and messages only, and after every change decide
// acts on the verdict.
//
// # A Lock, a hand-off, a loss
//
// Lock: Acquire, askDirectly (or one post for each of several masters), transport.Master.Do, answered, Vote.Answered,
// decide, succeed, begin. If the hold is queued: enqueue, and await until a message or a refresh brings the grant.
//
// Hand-off: the listener calls onMessage, handedOff (trusted where the message is from the very server whose clock is
// known, else the waiter asks), Vote.Granted, decide, succeed, begin; await returns.
//
// Loss: the timer queue calls Fire, expire, lose, finish, come; the contexts of the lease end, the rest is released.
//
// # The trust window
//
// A server counts a TTL from the moment it runs the script; the client does not know that moment, only that it came
// after the request was sent. So trust ends at (sent + TTL - drift), computed in clock.Drift.Trusted and nowhere else,
// on the monotonic and on the wall clock: the first stands still while a machine is suspended, the second may be set
// back. A request that a server did not run because it did not know the script does not count; trust starts when the
// script is sent whole. The timers end the lease there, whatever any call is doing, and Err looks at the clocks itself.
//
// Of several masters each has its own trust in its vote. The deadline is that of the quorum which is trusted longest.
//
// A hand-off is granted while nobody asks. Its message names the server's time of the grant; the waiter knows from its
// last reply that the server's clock read at most s when it sent the request, so it reads at most s + (1 + drift) x
// (time since, by whichever clock ran further) now, and at least TTL - (that - granted) is left. A hand-off lasts for
// the hand-off TTL only, min(TTL, 3 s), until the first renewal confirms it.
//
// # Renewals
//
// A lease is renewed at a third of its time. What is due on a master in one tick goes out in one script call, what
// expires first goes first, and what has expired goes nowhere. A renewal that fails is tried again after an eighth of
// the trust that is left, so however short that is, another try comes in time; a backoff does not hold it up. Where one
// of several masters has lost the hold, and a quorum has just confirmed it, that master is asked to take it back.
//
// # Waiting
//
// A waiter is a short lease in the masters' queue. Whoever makes room grants the lock to the head of the queue and
// publishes one message to its process. A message that reaches nobody passes the lock on to the next at once. Messages
// are hints. Each process refreshes its waiters of a lock together, three times in a waiter's lease; the reply tells of
// grants whose message was lost, of waiters that the server lost, and when the next expiry is due. A new subscription
// makes all waiters ask; a message that comes before the reply that the hold is queued is remembered.
//
// Of a crowd of waiters a refresh names the nearest only. Those behind them have their places in the queue too, so
// nothing changes in the order; but their leases are one lease of the process, which each refresh renews, and what the
// master knows of them is asked when they have become the nearest. Were all of them named, 100,000 would take three
// quarters of a server's time. If that lease has lapsed they are told of anew, and ask again if their places are gone.
// There is one call for a lock at a time, so whatever a crowd has to say is said in turns with other names. Where all
// of it gives up at once, those whose releases cannot be sent yet are released together.
//
// # Cohorts
//
// A hold that the goroutines of a process share is marked in its details. A write hold of that kind is granted a block
// of tokens: from the one that any other grant would get, as many as were asked for, but not further ahead of the
// master's clock than a second. Over several masters a client asks for less before that, by what it knows of their
// clocks, since each would cut the block off at its own. Each master says where its block begins; the lease may use
// what is above the largest of these. Raises, renewals and releases name the last token, which is the counter. Whoever
// queues first behind such a hold has its process told by one message; the answer to a renewal says it too, and a new
// subscription renews at once, for the message that was lost. Who follows whom under the hold is the matter of
// rwlock.RWMutex.
//
// # Conversions
//
// An upgrade or a downgrade is another hold, which names the one that it takes the place of and does not wait for it.
// Both stand until the new one is granted by a quorum and the old one has stood all that time by its own deadline;
// then the lease goes over to the new one, and the old one is released. So there is no gap, and whoever gives up has
// what it had. One that upgrades beside other readers waits at the head of the queue; a second one is refused by any
// master that has the first, since two who waited for each other on different masters would wait for ever. So is one
// that comes back there after it was passed over, if another one has come meanwhile: it has become the second. A
// conversion is granted beside those of the same hold that were given up, and beside what that hold was converted from:
// their releases may be late. A lease that goroutines of the process read under goes over only when all of them but one
// have left. While an upgrade waits, it is itself somebody who waits for their lease; so who else does is asked once an
// upgrade that is given up is released.
//
// # What is not known
//
// A request without a reply may have run, or may run yet. Its hold is released in the background until a master replies
// or it must have expired. If the connection broke, its buffers may deliver the acquire after the release; the release
// therefore leaves a tombstone, and a late acquire or regain of that hold finds it. Calls of one hold need no order.
//
// # What fails, and what follows
//
//	a request has no answer     the verdict goes on without that master after the node timeout; its answer counts when it
//	                            comes; the release leaves a tombstone
//	a grant comes too late      it is released, and a new hold asks, a few times for a single attempt
//	a message is lost           the next refresh tells of the grant; until then the lock is held for the hand-off TTL
//	a message comes twice       its token is no later one, and it is ignored
//	a raise is refused          the master is outvoted: it has the hold, and does not count
//	a renewal has no answer     tried again after an eighth of the trust that is left; the deadline stays
//	a renewal says "gone"       the master is outvoted; without a quorum the lease is lost, with one it is regained
//	a release has no answer     it goes on in the background, with a backoff per server, until the hold must have expired
//	this process stands still   whoever asks the lease reads the clocks first; a loss is noticed then, or by the timer
//	the machine is suspended    the wall clock has run on, and ends what the monotonic clock would not
//	the wall clock is set back  the monotonic clock ends the lease; set forward, the lease ends early
//	a server has lost its data  of several masters it abstains for the quarantine; a single one has its clock as the
//	                            floor of new tokens, and what it had granted is not excluded any more
//	another server answers      waiters ask, releases of late are repeated, and hand-offs of the old one are not trusted
//	the scripts are unknown     they are sent whole, once; of several masters the run id is compared then
//	a hook blocks               events wait, then are dropped and counted; no lease waits for them
//
// # Replicas
//
// Where a number of replicas is asked for, whatever makes or keeps a lease counts on a master only once so many of its
// replicas have it: the calls that acquire, raise, regain and renew go out with WAIT behind them. A renewal that did
// not wait would move the deadline past the expiry that a replica knows, and the lease would be trusted while the
// promoted replica lets others in. A grant from the queue was written by another process, over another connection, of
// which WAIT does not speak. So the waiter renews it first (granted, confirmed): that is a write of its own, later on
// the same server, and what confirms it confirms the grant. A master whose replicas do not confirm has granted a hold
// that does not count; it is released there, and the acquisition fails if too many masters are like that. What comes
// after that is not sent to the master before its replicas have caught up.
//
// # Several masters
//
// All are asked at once and the verdict falls as soon as it is certain, and after the node timeout without those that
// have not answered; what they say later still counts. Contenders queue by hold id, which all masters order alike.
// Where votes are split, contenders without a quorum yield their grants to an older hold that waits behind them. The
// oldest keeps its grants, so one more round settles it. A hold that upgrades comes before all of them, and never
// yields. What holds it up comes to an end: those that have a quorum leave, a single attempt that has none gives up,
// and the grants of a client that has died expire.
//
// A master that may have lost leases abstains for the quarantine. It is found by its marker (marker.lua): missing, or
// with another run id than the server has. Every client compares the two when it first sees a master, when a script had
// to be sent whole, and when its connection was replaced. A client that is not from rwlock.Dial cannot tell when its
// connection is replaced, so each of its scripts compares.
//
// Scripts are salted with the id of the set and the run id. A request that was made for the process before, and goes
// out over a new connection, names a digest that nobody can have loaded into the new process: it is sent whole and
// compares, and where the run ids differ it takes the marker's id away, so that no other request of that kind counts
// either. vote.lua is the one place that decides whether a master votes; what lets somebody in without granting a hold
// to the client (a release, a refresh, what has expired) follows it too, and tells the client to look at the marker.
//
// A set knows a master by its seat, and the process there by a term, which every master keeps of every seat. A process
// whose term is over, as that of a server which was the master before a failover, is found by whoever reaches any other
// master that has heard of the next one. A new term begins only for a client that reaches the seat by its name (the
// founder's, or one that has led there). A copy of a master that is promoted under another name is no member, so lists
// of masters that differ in that pair have no quorums apart: all votes for that seat are those of one server. What is
// not in order has no vote and is in the log; the set is refused where that leaves no quorum.
package engine
