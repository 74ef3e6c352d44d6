// Package scriptfuzz plays random sequences of script calls on a real server whose clock stands still. It compares
// every reply, every message and every key with a model of the lock in plain Go.
//
// The model decides from the contracts in the headers of the scripts, and shares nothing with their code. It has one
// set of granted holds, one queue, and one set of sidelined waiters and tombstones. Each of its calls first removes
// everything that has expired, and then lets in every waiter that may enter. The scripts do less in one call: they have
// short cuts, leave work to the next call, and keep records in several keys. A client must see the same. The package
// imports only the texts of the scripts: the layout of keys, arguments and replies is written down here again.
//
// # Files
//
//	step.go      Sequence and its steps, as text
//	generate.go  draws the steps of a sequence from its seed
//	model.go     the lock: holds, queue, sidelined waiters, tombstones, tokens
//	group.go     a group of calls, drawn, played and in the model
//	calls.go     each script as a call of the model, with the reply that it must give
//	marker.go    the marker of one of several masters, and its vote
//	play.go      plays a sequence: runs the scripts, compares replies and messages
//	compare.go   compares the keys with the model, and checks the promises
//	trace.go     compares the calls of real clients with the model
//	versions.go  the scripts of earlier releases, beside these, and what runs them
//	coverage.go  which reply codes and messages have been seen
//	shrink.go    finds a shorter sequence that fails
//
// # Traces
//
// The same model judges what real clients send: a [Trace] sees each call that a server runs, and compares its reply,
// its messages and the keys. Mini.CheckScripts of package testredis has one watch a server in fake time.
//
// # Kinds of sequences
//
// Each seed plays a lock that one master decides, or a lock on one of several masters. A kind adds what happens:
//
//	plain  calls, late copies of calls, and time that goes by
//	back   the server's clock goes back, too
//	lost   keys expire or are deleted one by one while the lock stands
//	many   more than 64 holds, waiters and tombstones, so that a call leaves work to the next
//
// # Two versions
//
// Clients of two releases use the same keys while a deployment goes on. Each call of a [Player] of two versions runs
// either the present script or that of an earlier release. What both leave and answer is compared with the one model,
// so a script that another release would misread fails. testdata/releases has the scripts of releases, as they were.
//
// What the package does not look at: errors of the server (memory, replicas, keys of another type), and slots of a
// Cluster that migrate. The tests of package scripts do.
package scriptfuzz
