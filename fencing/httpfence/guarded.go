package httpfence

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// Guarded returns a handler that runs next inside guard.Do under the request's
// fence for the resource that resource names, with all the request's fences and its
// owner in its context; opts limit what is taken from the request, as in [Extract]. What the guard refuses does not
// reach next and is answered as [WriteProblem] does; so is a request without a fence for the resource, and one
// with a [fencing.Read] fence whose method is not a safe one (GET, HEAD, OPTIONS,
// TRACE): readers do not exclude each other, so a reader that writes would be a
// hole that no token closes.
//
// The response is held in memory until guard.Do has returned nil, and only then
// sent. So nobody sees a success that the guard could not complete, and a client
// that reads slowly does not keep others from the resource. A client that sends
// slowly does: give the server a ReadTimeout. Handlers that stream their response
// use [Extract].
func Guarded(
	guard fencing.Guard, resource func(*http.Request) string, next http.Handler, opts ...fencing.ExtractOption,
) http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request) {
		f, err := required(r, resource(r))
		if err != nil {
			WriteProblem(w, err)
			return
		}
		held := holdResponse(w)
		err = guard.Do(r.Context(), f, func(ctx context.Context) error {
			next.ServeHTTP(held, r.WithContext(ctx))
			return nil
		})
		if err != nil {
			WriteProblem(w, err)
			return
		}
		held.sendTo(w)
	}
	return Extract(http.HandlerFunc(serve), opts...)
}

func required(r *http.Request, resource string) (fencing.Fence, error) {
	f, err := fencing.Require(r.Context(), resource)
	if err != nil {
		return f, err
	}
	if f.Mode != fencing.Write && !safe(r.Method) {
		return f, fmt.Errorf("%w for writing %q: the method %s needs more than a read lock's",
			fencing.ErrMissing, resource, r.Method)
	}
	return f, nil
}

// safe reports whether the method is one that only reads (RFC 9110, 9.2.1).
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
