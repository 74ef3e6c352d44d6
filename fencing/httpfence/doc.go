// Package httpfence carries fences over HTTP and refuses stale requests.
//
// The caller's client has a [Transport], which sends the fences and the owner of a
// request's context along; with the context of a lease no call mentions a token. The
// service has one of two middlewares:
//
//   - [Guarded] runs a handler inside a [fencing.Guard]: for what the service
//     keeps itself.
//   - [Extract] only puts the fences into the request's context: for handlers
//     whose storage does the checking, such as a SQL database with package
//     sqlguard, or that call the next service with a Transport of their own.
//     They report a refusal with [WriteProblem].
//
// A refusal is a problem body (RFC 9457) with the status 412 Precondition Failed
// for a stale token or a lost lock, 428 Precondition Required for a missing token and
// 400 Bad Request for a malformed header. [ResponseError] makes the error of it again
// on the caller's side, so it passes through any number of hops.
//
// The header says what the sender claims: it protects from callers that are late,
// not from those that lie. Accept it from callers that are authenticated.
package httpfence
