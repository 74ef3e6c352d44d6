// Package testkit is what the tests of the locks have in common.
//
//	place.go    Place: fake time, and every server program that is installed
//	world.go    World: the masters, in fake time or on real servers, and the time that goes by
//	process.go  Process: a locker with links and clients of its own, with a network that can fail
//	pending.go  Pending: an acquisition under way
//	order.go    Order: in which order waiters entered, each with its token
//	requests.go which scripts reach a master, and for which holds
//	record.go   Log and Trace: what a locker logged, and the events that it reported
//	clock.go    WallClock: the clocks of a machine that is suspended, skewed or set
//	left.go     the keys that are left when no lock is in use
//
// The servers themselves, and the faults of their links, are in testredis.
package testkit
