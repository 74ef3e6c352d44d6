package httpfence_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
)

// roundTripFunc is a RoundTripper of one function.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportSendsTheFencesOfTheContext(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), fence(fencing.Write, "orders", 17))
	ctx = fencing.NewContext(ctx, fence(fencing.Read, "stock", 3))
	var sent *http.Request
	client := &http.Client{Transport: &httpfence.Transport{
		Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			sent = r
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
		}),
	}}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://orders.test/", nil)
	require.NoError(t, err)
	req.Header.Set("X-Own", "1")
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())

	require.Equal(t, []string{`"3";lock="stock";mode=read`, `"17";lock="orders";mode=write`},
		sent.Header.Values(fencing.HeaderName))
	require.Equal(t, "1", sent.Header.Get("X-Own"))
	require.Empty(t, req.Header.Values(fencing.HeaderName), "a RoundTripper must not change the request")
}

func TestTransportWithoutFences(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://orders.test/", nil)
	require.NoError(t, err)
	transport := &httpfence.Transport{Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		require.Same(t, req, r)
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestExtractPutsFencesIntoTheContext(t *testing.T) {
	handler := httpfence.Extract(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := fencing.FromContext(r.Context(), "orders")
		_ = json.NewEncoder(w).Encode(ok)
		_ = json.NewEncoder(w).Encode(f.Token)
	}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, request("POST", "/", fence(fencing.Write, "orders", 17)))
	require.Equal(t, "true\n\"17\"\n", w.Body.String())

	w = httptest.NewRecorder()
	handler.ServeHTTP(w, request("POST", "/"))
	require.Equal(t, "false\n\"0\"\n", w.Body.String(), "a request without a fence passes")

	w = httptest.NewRecorder()
	handler.ServeHTTP(w, malformedRequest())
	require.Equal(t, 400, w.Code)
}

func jsonField(t *testing.T, text []byte, name string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	value, _ := fields[name].(string)
	return value
}
