package httpfence

import (
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// Transport is an [http.RoundTripper] that sends the fences and the owner of each request's context, as
// [fencing.Inject] does. The zero value is ready.
//
// They go to every host that the client calls or is redirected to, name the locks, and let the receiver join the
// owner's holds: use a client with a Transport only for services that may learn them.
type Transport struct {
	// Base sends the requests; nil is [http.DefaultTransport].
	Base http.RoundTripper
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements [http.RoundTripper]; req itself is not changed. What its receiver would refuse, such as more
// fences than a message may have, is not sent: the error is that of [fencing.Inject].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	extra := make(http.Header)
	err := fencing.Inject(req.Context(), extra)
	if len(extra) > 0 && err == nil {
		req = req.Clone(req.Context())
		if req.Header == nil {
			req.Header = make(http.Header)
		}
		err = fencing.Inject(req.Context(), req.Header) // it does not repeat existing values
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as every RoundTripper has to
		}
		return nil, err
	}
	return base.RoundTrip(req)
}
