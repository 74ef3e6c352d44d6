// Package transport sends script calls to the masters and receives their messages. All code that depends on rueidis is
// in this package: pipelines, scripts by digest, dials, broken connections, contexts.
//
//	Dial          a client that is tuned for locks, and its connections
//	Master        one Redis: calls on a caller's goroutine (Do), calls without a waiter (Post), renewals (Renew)
//	  connections what its client reports of its connections, and the identity of the master that they lead to
//	  topology    which servers answer for it: the owners of a Cluster's slots, the master of a Sentinel group
//	  Node        one of its servers: the unit of health
//	    health      whether it answers, and when it may be tried again
//	    serverClock the largest time that its clock can show now
//	    pipeline    the collected calls, and a few senders, which send them batch after batch; with replicas a second one
//	      group     acquires and releases of a batch that are one call
//	    renewals    the holds to renew there, by deadline
//	    listener    the messages to this process, on a separate connection
//
// # Nodes
//
// A call goes to the node of its first key. A slow, frozen or failed node delays no call to another node. In a Cluster
// the slot map is fetched at the start, after every sign of a change (a failure, a redirection, a lost subscription),
// and every 5 s while calls go out. Calls are sent directly to the server that the map names. If the map is wrong, the
// server refuses the call, and the call is sent again through the client, which follows redirections. So an outdated
// map costs at most a round trip. A node that has lost all its slots passes its unsent calls on to other nodes, and its
// goroutines end.
//
// A sample of a clock counts for a node only if the request was sent after the last moment at which another server may
// have answered for that node: a redirection, a change of the map or of the client's address, a lost subscription.
//
// Only groups and renewals of several locks have keys of several slots. If a server refuses them, as a cluster behind
// one address does, the node switches to one lock per call, and the refused call is sent again at once in that form.
//
// # Messages
//
// A standalone server and a Sentinel group have one connection for messages. A Cluster of version 7 or later has one
// connection to each node that has waiters, with a channel in the node's slots (SSUBSCRIBE). An older Cluster sends
// each message to all its nodes, so one connection to any of them is enough. Before it subscribes, a listener runs a
// script on the same connection that publishes to a channel without subscribers. This shows whether the server would
// refuse the messages of the scripts, and which process the connection leads to.
//
// A subscription is made again when its connection is lost, when its slot has moved, when the client of a Sentinel
// group has switched to another address, when its node has no slots any more, and when a client from Dial has opened
// another connection to a standalone server: the address may lead to another one by then. Connections for messages do
// not count, or lockers that share a client would make each other subscribe again without end.
// A client from Dial closes its connections to a server that is a replica, or has not got its data so far
// (LeaveReplica).
//
// A message of a hand-off may arrive through a server that did not grant the lock: a replica forwards messages, and so
// does the previous master, to subscribers that the granting server has not counted. The granting server may therefore
// have passed the lock on already. So the message names the process that granted the lock, and it is trusted only if
// the listener's connection leads to that process. Of a standalone server the message is trusted only if the listener's
// connection is newer than all others of the client, and the listener never stands at a replica.
//
// # Consequences of rueidis' behaviour
//
// A command whose context has a deadline is sent on a connection in synchronous mode with that deadline. When the
// deadline passes, the connection is closed for all callers. So deadlines are hidden (withoutDeadline).
//
// A caller that finds no connection dials on its own goroutine, regardless of its context, and all other callers wait
// for that dial. So a caller sends on its own goroutine only over a connection that has answered a moment ago.
// Otherwise its call waits for the pipeline, and is withdrawn if it has not left when the context ends: the client
// keeps a goroutine for each command that its caller has given up.
//
// A client with several multiplexed connections dials each one when it is first used. It must have answered often
// enough for all of them to be open. A client from Dial reports that it has one connection.
//
// A connection is found dead only by a PING, with the interval and the timeout of the client's options. So a client
// from Dial closes a silent connection itself.
//
// Every command dials a failed server again. So a failure is followed by a backoff. The backoff saves dials and is not
// part of the protocol: renewals and a user's own attempts are let through at a short interval.
package transport
