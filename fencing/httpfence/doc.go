// Package httpfence carries fences over HTTP and refuses stale requests.
//
// The caller's client has a [Transport], which sends the fences and the owner of a request's context along; with the
// context of a lease no call mentions a token. The service has one of two middlewares:
//
//   - [Guarded] runs a handler inside a [fencing.Guard]: for data that the service itself keeps.
//   - [Extract] only puts the fences into the request's context: for handlers with a storage that does the checking,
//     such as a SQL database with package sqlguard, or that call the next service with a Transport. They report a
//     refusal with [WriteProblem].
//
// A refusal is a problem body (RFC 9457) with the status 412 Precondition Failed for a stale token or a lost lock, 428
// Precondition Required for a missing token and 400 Bad Request for a malformed header. [ResponseError] turns the
// response back into the error on the caller's side, so a refusal passes through any number of hops.
//
// The header is a claim of the sender: it protects from late callers, not from malicious ones. Accept it from
// authenticated callers only.
package httpfence
