package httpfence_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
)

// served runs a handler on a loopback port.
func served(t *testing.T, h http.Handler) (client *http.Client, address string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Client(), server.URL
}

func orders(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// A gateway copies the header of the request, and its Transport sends what the context has: the service behind it must
// get what it would get without the gateway, however the client has written the name.
func TestThroughAGateway(t *testing.T) {
	var guard fencing.Watermark
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httpfence.Guarded(&guard,
		func(r *http.Request) string { return "orders/" + r.PathValue("id") }, http.HandlerFunc(orders)))
	client, service := served(t, mux)
	target, err := url.Parse(service)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &httpfence.Transport{Base: client.Transport}
	viaGateway, gateway := served(t, httpfence.Extract(proxy))

	for name, tt := range map[string]struct {
		path   string
		fence  string
		status int
	}{
		"canonical":        {"/orders/42", `"10";lock="orders/42";mode=write`, 204},
		"slash encoded":    {"/orders/42", `"10";lock="orders%2F42";mode=write`, 204},
		"slash in a name":  {"/orders/4%2F2", `"10";lock="orders/4/2";mode=write`, 204},
		"%25 in a name":    {"/orders/4%252F2", `"10";lock="orders/4%252F2";mode=write`, 204},
		"another resource": {"/orders/42", `"10";lock="orders/43";mode=write`, 428},
		"stale":            {"/orders/42", `"9";lock="orders%2F42";mode=write`, 412},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, guard.Claim(fence(fencing.Write, "orders/42", 10)))
			for base, from := range map[string]*http.Client{service: client, gateway: viaGateway} {
				r, err := http.NewRequestWithContext(t.Context(), "POST", base+tt.path, nil)
				require.NoError(t, err)
				if tt.fence != "" {
					r.Header.Set(fencing.HeaderName, tt.fence)
				}
				resp, err := from.Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, tt.status, resp.StatusCode, base)
				if tt.status != 204 {
					require.Error(t, httpfence.ResponseError(resp), "the gateway lets the refusal through")
				}
			}
		})
	}
}
