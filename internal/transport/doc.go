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
// # Nodes
//
// A call goes to the node of its first key. What is slow, frozen or down there holds up nothing that goes elsewhere. In
// a Cluster the map of slots is asked for at the start, after whatever speaks for a change (a failure, a redirection, a
// subscription that was lost), and every 5 s while calls go out. Calls are sent straight to the server that the map
// names. Where that is wrong the server refuses the call, and it is sent again by way of the client, which follows
// redirections: a map that is out of date costs a round trip and never more. A node that has lost all its slots hands
// on what it has not sent, and ends with its goroutines.
//
// A sample of a clock counts for a node only if the request left after the last moment at which another server may have
// answered there: a redirection, a change of the map or of the client's address, a subscription that was lost.
//
// Only renewals of several locks have keys of several slots. Where a server refuses them, as a cluster behind one
// address does, the node goes over to one lock in a call, and what was refused is sent again so at once.
//
// # Messages
//
// One connection for messages leads to the one server there is; in a Cluster of version 7 or later one to each node
// that is waited for, with a channel in its slots (SSUBSCRIBE). Else the Cluster sends each message to all its nodes,
// and one connection to any of them will do. Before it subscribes, a listener publishes to a channel that nobody hears,
// from a script, over the same connection: a server that would refuse the scripts' messages is found so, and the
// process that the connection leads to.
//
// A subscription is made anew when its connection is lost, when its slot has moved, when the client of a Sentinel group
// has gone over to another address, when its node has no slots any more, and when a standalone server's name leads a
// client from rwlock.Dial to another machine.
//
// A message of a hand-off may arrive by way of a server that did not grant it: a replica passes messages on, and so
// does the master before this one, to subscribers that the granting server has not counted. It may have passed the lock
// on, therefore. So the message names the process that granted, and is believed only where it is the listener's.
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
// A connection is found dead by a PING only, at the interval and with the patience of the client's options. So a client
// from rwlock.Dial breaks a silent one itself, and is told how long the leases can wait (Serve).
//
// A server that is down is dialled again by every command. So a failure is followed by a backoff. The backoff spares
// dials, not the protocol: renewals and a user's own attempts are let through at a short interval.
package transport
