package httpfence

import (
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// Extract returns a handler that runs next with the request's fences and owner in its
// context. A request without any passes, since whether it needs one is for the
// storage to say; one whose header is malformed, or breaks a limit of opts, is
// answered with 400.
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
