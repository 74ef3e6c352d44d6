// Package redlock takes the locks of package rwlock from a quorum of independent masters.
//
// New returns the same *rwlock.Locker, with the same leases and queues. A lock is held when more than half of the
// masters have granted it with one and the same fencing token, so whatever a minority forgets, repeats or never hears
// of, exclusion and the order of the tokens stand. A write's token is larger than every token before it; a read's is
// larger than that of every write before it, and two readers may share one. Waiters are served in the order of their
// hold ids, which begin with the time of their arrival; all masters agree on that order without asking each other.
//
// A master that comes back empty, or from an older state, has no vote until every lease that it may have forgotten has
// expired: for the longest TTL of any client, 2 s at the least. Masters need no persistence for that, and gain little
// by it. Leases that stand on the other masters are taken again there. Only where all masters are flushed at once is
// there no quarantine, and a lock that is taken again within a second may get tokens that go back by up to 1 s.
//
// A minority that is not in order has no vote either, for as long as it is like that: a replica, a master of another
// set, one that came back from a save of before the set was changed, a server that the others do not know. The log
// names it, and so do errors of acquisitions that lack its vote, as *rwlock.AbstainError. Name the masters alike in all
// clients: under another name a master is known for as long as its process lives, and after a restart only once a
// client has come that reaches it by the name of before. An address must lead all clients to one server at a time; what
// was there before must not answer any more.
//
// Clients of [Dial] can tell when a connection is replaced, by another server perhaps. With other clients every script
// compares the server's run id instead, which costs an INFO.
//
// The protocol is checked by the model in redlock/model and by a simulation in this package's tests.
package redlock
