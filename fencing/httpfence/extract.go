package httpfence

import (
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// Extract returns a handler that runs next with the request's fences and owner in its context. A request without any
// fence passes, because the storage decides whether a fence is required; a request with a malformed header, or with a
// header that breaks a limit of opts, is answered with 400.
func Extract(next http.Handler, opts ...fencing.ExtractOption) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := fencing.Extract(r.Context(), r.Header, opts...)
		if err != nil {
			WriteProblem(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
