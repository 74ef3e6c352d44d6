// Package engine keeps the leases of one locker: it asks the masters for holds, waits, renews and releases. A single
// master is the case N = 1 of the same code.
//
// # Files
//
//	engine.go      Engine, which joins the parts; registry, the holds by their ids; Close, and what it awaits
//	request.go     Request and Terms
//	masters.go     masters, all of an engine: their scripts, what a quorum of them does; postings, calls to several; the
//	               token floor to propose to scripts
//	lease.go       Lease, a caller's handle: the mutex, the end and its subscribers, the standing hold, its token block
//	hold.go        hold, one hold id on the masters: its grant, deadline and end, the calls that its ballot asks for,
//	               and what it needs that goroutines share
//	acquire.go     acquisition: asks for a hold and waits, until it is granted or given up
//	many.go        group: asks for the holds of several locks, and keeps all of them or none
//	handoff.go     voter, a master as one hold sees it: what is posted to it, what its replies and messages mean
//	wait.go        waitSets, the locks that this process waits for on one master, and what their refreshes answer;
//	               crowds, the acquisitions that wait in this process for their turn to ask; how an acquisition
//	               begins to wait, and ends without a lease
//	renew.go       keeping, the renewal of a hold: when, the round under way, and what a failed round says
//	contentions.go contentions, the locks for which acquisitions of this process have waited lately
//	ttl.go         for how long the masters are to keep a hold: its TTL, which SetTTL changes, or a minimum
//	giving.go      giving, every release of a hold, with the count of the answers; release, its part on one master
//	retry.go       the releases that failed, and those of a crowd, in a releaseQueue for each server; leaving, the
//	               releases of this process that its next requests for the lock follow
//	convert.go     the second hold of a lease, in the other mode, and the exchange; a hold that its process leaves to
//	               another one, which goes on with it
//	events.go      the user's hooks and logger; what this process holds, waits for and has lost; counters
//	admin.go       Admin: what the masters show of a lock, and how an operator breaks a hold
//	outage.go      servers that do not answer, and when each is reported next; servers that evict keys
//
// Packages that can be read and tested alone are below it: ballot (decides one hold from the votes of its masters),
// schedule (when the waiters for a lock ask a master), masterset (whether the masters are one usable set), wire (keys,
// arguments, replies and messages of the scripts), transport (script calls, messages, and everything that concerns
// rueidis), clock (every deadline), timerqueue (every timer of an engine, on one goroutine) and events (runs the user's
// loggers and hooks, on a goroutine that nothing depends on).
//
// # Goroutines and lock order
//
// An engine has 1 + N goroutines for any number of leases while nothing is sent: one for the timers and one for each
// master's pipeline. A pipeline that has much to send adds up to four senders. With waiters each master that is
// listened to adds one. A master in quarantine adds one that reports its end. A master that is more than one server
// adds one that watches which servers these are, and a Cluster has a pipeline and a listener for each server that owns
// slots.
//
// A lease has one mutex, which guards its doneState and its holds, with the acquisition and the keeping of each. A
// giving has one for its answers, and each queue of releases has one for what waits. No mutex is held over a network
// call; what is sent goes out once the lease's mutex is unlocked. Mutexes are taken in this order: lease; wait sets, or
// the releases of a master and then their queue; the check of the masters; registry, tasks, pipeline, timer queue,
// giving, and the counts and outages that have a mutex of their own. An RWMutex calls LetGo under its own mutex, which
// therefore comes before all of these.
//
// # The life of a hold
//
//	                 reply, message or refresh: granted by a quorum
//	      Acquire  +--------+       with one token, and in time         +------+  renewed: a new deadline
//	    ---------->| asking |------------------------------------------>| held |<----+
//	               +--------+                                           +------+-----+
//	                   |  |  ^                                            |  |
//	ctx ends, closed,  |  |  | granted too late, or no common token:      |  | deadline, MaxHold, no quorum has it
//	Try refused,       |  +--+ a new hold id                              |  +------------------------+
//	masters refuse     |                                                  | Release, Close             |
//	                   v                                                  v                            v
//	              failed: *Error                                   ended: ErrReleased           ended: *Loss
//
// Every exit from asking or held releases the hold on each master that may have it. The ballot's vote is what is known
// of the hold on a master. It changes only by that master's replies and messages, and after each change decide acts on
// the verdict. An answer, a message and a timer belong to one hold, and count for no other.
//
// A lease stands on one hold. Its end is the end of that hold. A conversion acquires a second hold, which has an end of
// its own until the exchange: then the lease stands on the second one, keeps its subscribers, and the first one is
// released.
//
// Lock: Acquire, askDirectly (one post for each of several masters), transport.Master.Do, answered, Vote.Answered,
// decide, begin. If the hold is queued: enqueue, and await until a message or a refresh brings the grant.
//
// A hand-off becomes a lease: the listener calls onMessage, handedOff (trusted if the message is from the very server
// with the known clock; otherwise the waiter asks), Vote.Granted, decide, begin; await returns.
//
// Renewal: keeping.plan decides when. The timer queue calls Fire, keeping.fire, start, and ask of each master; answered
// counts one answer, and settle decides: succeeded, stalled, lose, or wait for more.
//
// Release: endByHolder, giveBack, giving.directly; with several masters giving.calls, and count for each answer. A hold
// that ends without a caller that waits: giveAtOnce, or giveTogether for a crowd. What fails goes to the releaseQueue.
//
// Loss: the timer queue calls Fire, expire, lose, finish, fire. The contexts of the lease end, the rest is released.
//
// An option of a lease is a field of Terms, one of all leases a field of Config. What only few holds need for it is in
// extra, which is nil for the others.
//
// # What fails, and what follows
//
//	no answer to a request      the verdict goes on without that master after the node timeout; a later answer counts
//	a grant comes too late      it is released, and a new hold asks, a few times for a single attempt
//	a message is lost           the next refresh reports the grant; until then the lock is held for the hand-off TTL
//	a renewal says "gone"       the master is outvoted; without a quorum the lease is lost, with one it is regained
//	no answer to a release      it goes on in the background until the hold must have expired; its tombstone stops an
//	                            acquire that arrives after it
//	this process stands still   a call on the lease reads the clocks first; a loss is noticed then, or by the timer
//	a server has lost its data  one of several masters abstains for the quarantine; a single one excludes no more what
//	                            it had granted, and its clock is the token floor
//	another server answers      waiters ask, recent releases are repeated, and hand-offs of the old server do not count
//
// # Glossary
//
//	hold           one acquisition on the masters, named by a ULID
//	lease          a caller's handle of a granted hold
//	owner          the ULID under which holds can be joined: named by the caller, or the hold's id
//	round          one request to all masters and their answers
//	hand-off       a release, or a script that finds an expiry, grants the lock to the next waiter by a message
//	contended      a waiter elsewhere wants a lock that goroutines share
//	token floor    the smallest token that a script may mint
//	token block    consecutive tokens of one write grant, for the goroutines of a shared hold
//	sidelined      a waiter that was passed over, since its process did not receive a hand-off
//	tombstone      mark of a hold that was released before its acquire arrived
//	conversion     an upgrade or a downgrade
//	adoption       a conversion, in the same mode, of a hold that another process has detached
//	quarantine     the time in which a master that may have lost data does not vote
//	rejoin         a master that lost its marker returns to its set, with a quarantine
//	shared hold    a hold that the goroutines of a process share
//	local queue    the FIFO of one process's goroutines
package engine
