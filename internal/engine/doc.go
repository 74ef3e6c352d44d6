// Package engine keeps the leases of one locker: it asks the masters for holds, waits, renews and releases. A single
// master is the case N = 1 of the same code.
//
// # Files
//
//	engine.go      Engine, which joins the parts; registry, the holds by their ids; Close, and what it awaits
//	masters.go     masters, all of an engine: their scripts, what a quorum of them does; postings, calls to several
//	lease.go       Lease, a caller's handle: the mutex, the end and its subscribers, the standing hold, its token block
//	driver.go      Request and Terms; driver of one hold, which reports to package hold what happens, and has what the
//	               hold must not know: its names, its lease, and what it needs that goroutines share
//	effects.go     what follows, carried out: requests about a grant, renewals, the timer, the end, reports
//	acquire.go     acquisition: asks for a hold and waits, until it is granted or given up
//	many.go        MultiLock: asks for the holds of several locks, and keeps all of them or none
//	handoff.go     voter, a master as one hold sees it: what its replies and messages mean
//	wait.go        waitSets, the locks that this process waits for on one master, and what their refreshes answer; how
//	               an acquisition begins to wait, and ends without a lease
//	release.go     giving, a release of a hold that a caller waits for, with the count of the answers; the releases that
//	               no caller waits for, for package releases
//	convert.go     the second hold of a lease, in the other mode, and the exchange; a hold that its process leaves to
//	               another one, which goes on with it
//	events.go      the user's hooks and logger; what this process holds, waits for and has lost; counters
//
// Packages that can be read and tested alone are below it: hold (the life of one hold; begin there), ballot (decides
// one hold from the votes of its masters), schedule (when the waiters for a lock ask a master), masterset (whether the
// masters are one usable set), wire (keys, arguments, replies and messages of the scripts), transport (script calls,
// messages, and everything that concerns rueidis), crowd (which acquisitions wait in this process for their turn to
// ask), releases (gives holds back until the masters have confirmed it), tokens (the token floor to propose to
// scripts), outage (which servers fail, and when each is reported next), clock (every deadline), timerqueue (every
// timer of an engine, on one goroutine), events (runs the user's loggers and hooks, on a goroutine that nothing depends
// on), admin (what the masters show of a lock, and how an operator breaks a hold) and lockerr (why a call failed, and
// how a lease was lost).
//
// # Goroutines and lock order
//
// An engine has 1 + N goroutines for any number of leases while nothing is sent: one for the timers and one for each
// master's pipeline. A pipeline that has much to send adds up to four senders, and callers that send at the same time
// share one for each batch of theirs. With waiters each master that is listened to adds one. A master in quarantine
// adds one that reports its end. A master that is more than one server adds one that watches which servers these are,
// and a Cluster has a pipeline and a listener for each server that owns slots.
//
// No mutex is held over a network call: what is sent under one joins the queue of a pipeline. Mutexes are taken in this
// order, from the top down:
//
//	reentrant.Locker.mu      the sections of owners; held during no call of a lease
//	RWMutex.mu               of package rwlock, then its registry or a section's limit; LetGo is called under it
//	Lease.mu                 its doneState, its holds with their drivers, its acquisitions; "under mu" alone means it
//	waitSets.mu or queue.mu  the waiters on one master; the releases that wait for one server
//	masterset.Set.mu         whether the masters are one usable set
//	registry, then tasks     the holds by id; what Close awaits
//	transport, timerqueue    pipelines and listeners; the timers
//	giving                   the answers to one release
//	the others               losses and restarts; Queues, Leaving and recentReleases; crowd and outage: lists and counts
//
// # The life of a hold
//
// Package hold has the states, what leads from one to the next, and what follows, as one table. A driver takes an event
// to its hold by step, under the mutex of the lease, and apply carries out what follows. driver.current is the one
// place that knows whether an answer or a message counts: it names one hold id, that of the current hold, which is not
// over. The exception is Inherit: the release of a former hold is answered that an operator broke it, and the current
// hold ends.
//
// A lease stands on one hold. Its end is the end of that hold. A conversion acquires a second hold, which has an end of
// its own until the exchange: then the lease stands on the second one, keeps its subscribers, and the first one is
// released.
//
// Lock (acquire.go): Acquire, askDirectly (one post for each of several masters), transport.Master.Do, answered, step
// of Answered, apply, start. If the hold is queued (wait.go): enqueue, and await until a message or a refresh brings
// the grant.
//
// A hand-off becomes a lease (handoff.go): the listener calls onMessage, handedOff (Told if the message is from the
// very server with the known clock; otherwise Heard, and the waiter asks), apply, start; await returns.
//
// Renewal (effects.go; package hold decides in held.go): the timer queue calls Fire, step of Tick, apply, renew for
// each master; renewed reports one answer, from which Kept, NotKept, End or nothing follows.
//
// Release (lease.go, release.go): endByHolder, giveBack, giving.directly; with several masters giving.calls, and count
// for each answer. A hold that ends without a caller that waits: giveInBackground, releases.Queues.Add. A release that
// fails: Retry.
//
// Loss (driver.go, effects.go): the timer queue calls Fire, step of Tick, apply, end, fire. The rest is released. The
// contexts of the lease end a moment later, when its mutex is unlocked: trust has ended before.
//
// An option of a lease is a field of Terms, or of hold.Terms if it decides when the hold ends; one of all leases is a
// field of Config. What only few holds need for it is in extra, here or in package hold, which is nil for the
// others.
//
// # What fails, and what follows
//
//	no answer to a request      the verdict goes on without that master after the node timeout; a later answer counts
//	a grant comes too late      it is released, and a new hold asks, a few times for a single attempt
//	a message is lost           the next refresh reports the grant; until then the lock is held for the hand-off TTL
//	a renewal says "gone"       the master is outvoted; without a quorum the lease is lost, with one it is regained
//	no answer to a release      it goes on in the background until the hold must have expired; its tombstone stops an
//	                            acquire that arrives after it
//	an own release is overtaken a single attempt is refused, and asks again once that release is answered; a request
//	                            that queues is handed the lock
//	an operator breaks a hold   its lease ends; the masters keep the lock until the Release, or until its deadline
//	this process stands still   a call on the lease reads the clocks first; a loss is noticed then, or by the timer
//	a server has lost its data  one of several masters abstains for the quarantine; a single one excludes no more what
//	                            it had granted, and its clock is the token floor
//	another server answers      waiters ask, recent releases are repeated, and hand-offs of the old server do not count
//
// # Glossary
//
//	hold           one acquisition on the masters, named by a ULID
//	lease          a caller's handle of a granted hold
//	driver         a hold as the engine has it: a variable h of this package is one, and h.life that of package hold
//	TTL            for how long a renewal extends a hold: that of its terms, or of SetTTL. Keep is the TTL, or what is
//	               left of the minimum if that is longer
//	owner          the ULID under which holds can be joined: named by the caller, or the hold's id
//	round          one request to all masters and their answers
//	hand-off       a release, or a script that finds an expiry, grants the lock to the next waiter by a message
//	multi-lock     the locks of one call that needs all of them or none
//	in flight      sent, and without an answer so far
//	pending        of a release: no quorum has confirmed it so far
//	stray          a request of a hold that may arrive after its release
//	group          acquires and releases that leave in one script call, in package transport
//	contended      a waiter elsewhere wants a lock that goroutines share
//	token floor    the smallest token that a script may mint
//	token block    consecutive tokens of one write grant, for the goroutines of a shared hold
//	sidelined      a waiter that was passed over, since its process did not receive a hand-off
//	tombstone      mark of a hold that was released before its acquire arrived; that acquire removes it if no other
//	               can come
//	conversion     an upgrade or a downgrade
//	adoption       a conversion, in the same mode, of a hold that another process has detached
//	quarantine     the time in which a master that may have lost data does not vote
//	rejoin         a master that lost its marker returns to its set, with a quarantine
//	shared hold    a hold that the goroutines of a process share
//	section        work under a lock: of a goroutine in package rwlock, of an owner in package reentrant
//	local queue    the FIFO of one process's goroutines
package engine
