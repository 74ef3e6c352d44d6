// Package lockdebug serves a page about the locks of one process: its leases, its waiters, its last losses and the
// counters of its Locker. It needs the standard library only, and asks no server: the page works while Redis does not.
//
// [Handler] has no authentication. The names, the owners and the metas of locks are for operators: serve it where
// net/http/pprof would be served, on a loopback or an internal address. It only reads, and it shows no password.
package lockdebug
