// Package grpcfence carries fences over gRPC and refuses stale calls: it does for
// gRPC what package httpfence does for HTTP. It is a module of its own, so that
// only its users depend on gRPC.
//
// The caller's connection has [UnaryClient] and [StreamClient], which send the
// fences and the owner of a call's context as metadata. The server has one of two pairs:
//
//   - [UnaryServerGuard] and [StreamServerGuard] run handlers inside a
//     [fencing.Guard]: for what the service keeps itself.
//   - [UnaryServerExtract] and [StreamServerExtract] only put the fences into the
//     context: for handlers whose storage does the checking, or that call the next
//     service. A refusal that a handler returns is made a status all the same.
//
// A stale or missing fence and a lost lock are the status FailedPrecondition,
// malformed metadata is InvalidArgument; all have an ErrorInfo as detail.
// [FromStatus] makes the error of it again on the caller's side. A handler that returns such a status
// from a call of its own passes it on as it is.
//
// The metadata says what the sender claims: it protects from callers that are
// late, not from those that lie. Accept it from callers that are authenticated.
package grpcfence
