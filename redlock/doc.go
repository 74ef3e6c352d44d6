// Package redlock takes the locks of package rwlock from a quorum of independent masters.
//
// New returns the same *rwlock.Locker, with the same leases and queues. A lock is held when more than half of the
// masters have granted it with the same fencing token. So exclusion and the order of the tokens hold even if a minority
// forgets, repeats or never receives requests. A writer's token is larger than every token before it. A reader's token
// is larger than the token of every write before it, and two readers may share one. Waiters are served in the order of
// their hold ids, which begin with the time of their arrival; all masters agree on that order without messages between
// them.
//
// A master that comes back empty, or from an older state, is in quarantine: it has no vote until every lease that it
// may have forgotten has expired. The quarantine lasts for the longest TTL of any client, and at least 2 s. The masters
// of a new set begin with one, so nothing is granted in the first 10 s of its life, with the default TTL. Masters need
// no persistence, and gain little from it. Leases that still stand on the other masters are taken again on that master.
//
// A minority that is not in order has no vote either, until it is repaired: a replica, a master of another set, a
// master that came back from a save from before a change of the set, a server that the other masters do not know. The
// log names it, and so do errors of acquisitions that lack its vote, as *rwlock.AbstainError. Give the masters the same
// names in all clients. Under another name a master is known as long as its process lives; after a restart it is known
// only once a client has reached it by the earlier name. At any time an address must lead all clients to the same
// server, and a server that was there before must not answer any more.
//
// The locker can see when a connection of a client from [Dial] is replaced, perhaps by a connection to another server.
// With other clients every script compares the server's run id instead, which costs an INFO.
//
// The model in redlock/model and a simulation in this package's tests check the protocol.
package redlock
