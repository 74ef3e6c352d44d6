// Package wire is what crosses between a locker and its masters: the keys, arguments and replies of the scripts, and
// the messages that scripts publish. It is pure. It sends nothing and keeps nothing, and it decides nothing: a request
// becomes arguments, and a reply or a message becomes typed fields or an error.
//
//	message                script        reply
//	Acquire                acquire.lua   HoldReply
//	Join                   join.lua      HoldReply
//	Raise                  raise.lua     HoldReply
//	Yield                  yield.lua     HoldReply
//	Regain                 regain.lua    HoldReply
//	Renew                  renew.lua     RenewReply
//	Refresh                refresh.lua   RefreshReply
//	Release                release.lua   ReleaseReply
//	Break                  break.lua     BreakReply
//	(no arguments)         inspect.lua   InspectReply
//	Handoff, YieldRequest, Contended, BreakNotice     published by the scripts, read by ReadMessage
//
// A message and its reply stand in one file. Its fields have the names of the script's header. Every script but
// inspect.lua has a Vote among its arguments: VoteAt. A Vote is not among those that a message returns, because its
// last fields are known only when the request is sent.
//
// # Replies
//
// A reply is a list of fields, or a line: the same fields in one text, with a space between them. Only the last field
// of a line may have spaces. A list of four numbers costs a server 6,000 instructions more than a line, which is 4 % of
// a writer's pair, so acquire.lua and release.lua answer with a line in their common cases. A client reads both. Two
// replies are one integer: of a grant the server's time, if that is also the token, and 1 of a release.
//
// A proxy or another script may answer anything, so a reply is read strictly: a status that the script does not have, a
// field of another type, a missing or an additional field, a number out of range, and a grant without a token or
// without time are errors. So a malformed reply counts as no answer, and never as a grant. A refusal by the server,
// such as WRONGTYPE, is returned as it is. Only the rows of inspect.lua are read leniently: no decision depends on
// them, and an operator needs what can be read.
//
// # Allocations
//
// Args appends to the caller's slice, so the arguments of a single master are in an array on its caller's stack. What
// many requests have in common is formatted once: a TTL as Millis, and the details of a hold as a text.
package wire
