package httpfence

import (
	"bytes"
	"maps"
	"net/http"
)

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
