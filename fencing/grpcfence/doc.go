// Package grpcfence carries fences over gRPC and refuses stale calls, as package httpfence does for HTTP. It is a
// separate module, so that only its users depend on gRPC.
//
// The caller's connection has [UnaryClient] and [StreamClient], which send the fences and the owner of a call's context
// as metadata. The server has one of two pairs:
//
//   - [UnaryServerGuard] and [StreamServerGuard] run handlers inside a [fencing.Guard]: for data that the service
//     itself keeps.
//   - [UnaryServerExtract] and [StreamServerExtract] only put the fences into the context: for handlers with a storage
//     that does the checking, or that call the next service. They too turn a refusal that a handler returns into a
//     status.
//
// A stale or missing fence and a lost lock are the status FailedPrecondition, malformed metadata is InvalidArgument;
// all have an ErrorInfo as detail. [FromStatus] turns the status back into the error on the caller's side. If a handler
// returns such a status from a call of its own, it is passed on unchanged.
//
// The metadata is a claim of the sender: it protects from late callers, not from malicious ones. Accept it from
// authenticated callers only.
package grpcfence
