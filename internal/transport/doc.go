// Package transport carries script calls to the masters and their messages back. Everything that concerns rueidis is
// here: pipelines, scripts by digest, dials, broken connections, contexts.
//
//	Master        one Redis: calls by a caller's goroutine (Do), calls that nobody waits for (Post), renewals (Renew)
//	  connections what its client tells of its connections, and who the master is that they lead to
//	  topology    which servers answer for it: the owners of a Cluster's slots, the master of a Sentinel group
//	  Node        one of its servers: the unit of health
//	    health      whether it answers, and when it may be tried again
//	    serverClock the most that its clock can show now
//	    pipeline    one goroutine that sends what has gathered, batch after batch; with replicas a second one
//	    renewals    what is to be renewed there, by deadline
//	    listener    the messages to this process, on a connection of its own
//
// # What rueidis does, and what follows
//
// A command whose context has a deadline is sent on a connection in synchronous mode with that deadline, which closes
// it for every other caller when it passes. So deadlines are hidden (withoutDeadline).
//
// A caller that finds no connection dials it on its own goroutine, whatever its context says, and everybody else waits
// for that dial. So a caller sends on its own goroutine only over a connection that has answered a moment ago; else it
// waits for another goroutine's call and can leave when its context ends.
//
// A client with several multiplexed connections dials each when it is first drawn. It has to have answered often enough
// for all of them to stand; a client from rwlock.Dial says that it has one.
//
// A server that is down is dialled again by every command. So a failure is followed by a backoff. The backoff spares
// dials, not the protocol: renewals and a user's own attempts are let through at a short interval.
package transport
