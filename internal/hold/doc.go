// Package hold is the life of one hold: from the first request until nothing of it is left on any master. It is pure:
// it has no clock, network, goroutine, mutex or context, and knows no names. An event goes in, and effects come out.
// The caller of Step, package engine, carries them out in their order.
//
//	var h hold.Hold
//	h.Init(terms, ballot.Wait, 3, false, 0)
//	effects := h.Step(now, hold.Event{Kind: hold.Begin}, nil) // SendAcquire 0, SendAcquire 1, SendAcquire 2
//	effects = h.Step(now, hold.Event{Kind: hold.Answered, Master: 1, Answer: granted}, effects[:0])
//
// Begin with the stories in testdata: each says what happens to one hold, line by line. hold.go has what a hold is,
// and what happens while it is asked for; held.go what happens then; event.go all events and effects; giving.go what
// the answers to its releases show. Package ballot has its votes.
//
// # States
//
//	state    | event                        | next   | effects
//	---------+------------------------------+--------+------------------------------------------------------------
//	Asking   | Begin                        |        | SendAcquire to all; after many restarts Wait for all
//	         | an answer or a message       |        | Wait for a master that has not granted it; SendRaise, SendYield
//	         |   a quorum, one token, in time  Held   | Start
//	         |   too late, no common token  |        | SendRelease to all that may have it, Restart
//	         |   no quorum is possible      | Failed | Fail, SendRelease
//	         | Late: the node timeout       |        | as an answer of all that are silent
//	         | Remind: the waiters' timer   |        | SendAcquire where it is unknown, SendYield where it is granted
//	         | GiveUp, Broken               | Failed | Fail, SendRelease
//	Held     | Tick, a round is due         |        | SendRenew to all that have it: one round at a time
//	         | Renewed, by a quorum         |        | Kept; SendRegain to masters without it
//	         | Renewed, and no quorum has it| Ended  | End: Taken, SendRelease
//	         | Tick, no quorum in time      |        | NotKept; a round follows within an eighth of what is left
//	         | Tick, near the end           |        | AtRisk, once until it is renewed
//	         | any, and its time is over    | Ended  | End: Expired, Unreachable, Paused or MaxHold; SendRelease
//	         | a late answer of a master    |        | SendRaise to the token; SendRenew in the round
//	         | Release                      | Ended  | End, SendRelease
//	         | Replace: after a conversion  | Ended  | End, SendRelease
//	         | Release, ByHeir              | Ended  | End, and no release: another process adopts the hold
//	         | Broken at once, Lose         | Ended  | End: why, SendRelease
//	         | Broken, Keeps                | Lost   | End: broken
//	Lost     | Release, Tick at the deadline| Ended  | SendRelease
//	Ended    | any                          |        | none
//	Failed   | any                          |        | none
//
// # What holds
//
//   - Every way to Ended and Failed sends a release to each master that may have the hold, but for ByHeir.
//   - Until is never later than a quorum of the votes with the token is trusted. Only a grant or a renewal moves it
//     forward, from the time that its request left.
//   - After the end nothing follows from any event.
//   - A master has at most one request about a grant: its answer decides what is sent next.
//
// A conversion is a second hold, which is asked for while the first one is held. Exchange and Replace are one moment:
// the lease stands on the second one then, and the first one is released. An adoption is a single attempt whose
// SendRelease the caller follows with the release of the adopted hold: a Giving of WasHeld counts its answers.
package hold
