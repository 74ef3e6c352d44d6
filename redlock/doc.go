// Package redlock takes the locks of package rwlock from a quorum of independent masters.
//
// New returns the same *rwlock.Locker, with the same leases, queues and tokens. A lock is held when more than half of
// the masters have granted it with one and the same fencing token, so whatever a minority forgets, repeats or never
// hears of, exclusion and the order of the tokens stand. Waiters are served in the order of their hold ids, which
// begin with the time of their arrival; all masters agree on that order without asking each other.
//
// A master that comes back empty, or from an older state, has no vote until every lease that it may have forgotten has
// expired. Masters need no persistence for that, and gain little by it.
//
// The protocol is checked by the model in redlock/model and by a simulation in this package's tests.
package redlock
