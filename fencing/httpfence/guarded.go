package httpfence

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// Guarded returns a handler that runs next inside guard.Do under the request's fence for the resource that the function
// resource returns, with all the request's fences and its owner in its context; opts limit what is accepted from the
// request, as in [Extract]. A request that the guard refuses does not reach next and is answered with [WriteProblem].
// The same happens to a request without a fence for the resource, and to a request with a [fencing.Read] fence and a
// method that is not safe (safe are GET, HEAD, OPTIONS and TRACE): readers do not exclude each other, so no token could
// protect the data from a reader that writes.
//
// The access is over when next returns. What next leaves running then is not guarded any more, and may write after a
// newer holder; the end of the request's context tells it to stop. So an [http.TimeoutHandler], which leaves its
// handler running, belongs around Guarded and not inside.
//
// The response is held in memory and sent after guard.Do has returned nil. So no client sees a success that the guard
// could not complete, and a client that reads slowly does not delay other requests for the resource. A client that
// sends slowly does delay them: give the server a ReadTimeout. Handlers that stream their response use [Extract].
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
			ctx, end := context.WithCancel(ctx)
			defer end() // before the guard lets a newer access begin
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

// safe reports whether the method only reads (RFC 9110, 9.2.1).
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// heldResponse keeps a handler's response in memory. It has no Flush and no Hijack: http.ResponseController reports
// ErrNotSupported for them.
type heldResponse struct {
	header http.Header // as the handler sees it
	sent   http.Header // as it was when the status was written
	status int         // 0 until then
	body   bytes.Buffer
}

// holdResponse starts with the header that was set on w before.
func holdResponse(w http.ResponseWriter) *heldResponse {
	return &heldResponse{header: w.Header().Clone()}
}

func (h *heldResponse) Header() http.Header { return h.header }

// WriteHeader keeps the first final status; later changes of the header are lost as they are in net/http, except for
// trailers. Informational statuses are dropped: they are useful only while the handler still runs.
func (h *heldResponse) WriteHeader(status int) {
	if h.status != 0 || 100 <= status && status <= 199 {
		return
	}
	h.status = status
	h.sent = h.header.Clone()
}

func (h *heldResponse) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.body.Write(p)
}

// sendTo writes the held response. Errors of w mean that the client has gone.
func (h *heldResponse) sendTo(w http.ResponseWriter) {
	h.WriteHeader(http.StatusOK)
	clear(w.Header())
	maps.Copy(w.Header(), h.sent)
	w.WriteHeader(h.status)
	_, _ = h.body.WriteTo(w)
	maps.Copy(w.Header(), h.header) // trailers, which may be set until the end
}
