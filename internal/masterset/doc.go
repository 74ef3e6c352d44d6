// Package masterset decides whether the masters of a locker are one usable set, and brings them in order. It knows
// nothing of locks and leases: callbacks define what follows for the engine's waiters and scripts.
//
// # The way of the data
//
//	Set           starts a bootstrap when one is due, and applies what it found
//	  bootstrap   run: looks at the markers of all masters, gives markers, begins terms
//	    view      the rules. judge turns the replies of all masters into a finding for each; it is pure
//	      terms   the processes that the seats have had; pure
//	  askAll      sends a request (a call of marker.lua) to each master, and returns the replies in time
//
// Check (before an acquisition) and Recheck (a master has refused its vote because of its marker) start a bootstrap. It
// asks all masters at once, judges their replies together, and conclude says what follows. apply then gives each master
// in order its identity, the id of its marker, which the transport sends with every vote. The remaining masters get the
// identity "?", which no marker has.
//
// # Words
//
//	marker      what a master stores of itself: its set, its seat, the last terms, and until when it abstains
//	seat        the place of one master in its set. It is not the master's index in a client's list: another client may
//	            have the list in another order
//	term        one process in a seat; the next begins after a restart or a replacement, with a quarantine
//	quarantine  the time in which a master that may have lost data does not vote
//	unfit       breaks a rule of the set: the master has no vote, and is named in the log
//	in order    belongs to the set with its current process: the master votes, unless it abstains
//
// # A master that may have lost leases
//
// It abstains for the quarantine. It is found by its marker: missing, or with another run id than the server has. Every
// client compares the two when it first sees a master, when a script had to be sent whole, and when its connection was
// replaced; a client that is not from rwlock.Dial cannot see that, so each of its scripts compares. vote.lua alone
// decides whether a master votes.
//
// A set knows a master by its seat, and the process there by a term; every master keeps the terms of all seats. A
// process with a term that is over, such as the master before a failover, is found by any client that reaches another
// master that knows the next term. A new term begins only for a client that reaches the seat by its name (the
// founder's, or a name that has led there). A promoted copy of a master under another name is no member, so lists of
// masters that differ in these two have no separate quorums: all votes for a seat are from one server. A master that is
// not in order has no vote and is logged; the set is refused if that leaves no quorum.
//
// # Votes that were made for an earlier process
//
// Four checks keep them from counting:
//
//	the id in a vote    a vote that is made after a new connection was opened names the id "?", until the marker has
//	                    been read over that connection (transport: Vote)
//	the connection      the answer to a vote that was made before, and left over the new connection, is discarded
//	                    (transport: errReconnected); where nothing else is wrong, the request is sent again once the
//	                    marker was read, and what is posted meanwhile waits for that too (transport: Repeater, untilRead)
//	a hand-off          is not trusted until the marker has been read over the current connection (transport: Identified)
//	the digest          scripts are salted with the id of the set and the run id. A new process learns such a script only
//	                    from a client that sends it whole, and then compares the run ids. If they differ the script
//	                    removes the marker's id, and every vote that names it is refused from then on
//
// The last check needs a write. Where the server refuses that (NOREPLICAS, READONLY, MISCONF) the call fails, but the
// server knows the script now and the marker keeps its id: a later request with an old vote runs by its digest, and may
// write once the server accepts writes again. Then the other checks protect. The connections to the earlier process
// ended with it, so the request's answer is discarded and its hold is released, and waiters that it lets in do not
// trust their hand-offs. A client that may read the run id does not find the master in order: the run id in the marker
// is another than the server's until the next term begins, and that gives the marker another id. (A client that may not
// read it never notices a restart by itself. It relies on the clients that may.)
package masterset
