package httpfence_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestResponseError(t *testing.T) {
	stale := &fencing.StaleError{Resource: `ü"` + strings.Repeat("\x00", 500), Got: 17, Seen: 18}
	for name, tt := range map[string]struct{ sent, want error }{
		"stale":     {stale, fencing.ErrStale},
		"missing":   {fence(fencing.Read, "a", 0).Validate(), fencing.ErrMissing},
		"malformed": {fence(fencing.Read, "", 1).Validate(), fencing.ErrMalformed},
		"another":   {io.ErrUnexpectedEOF, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			httpfence.WriteProblem(w, tt.sent)
			text := w.Body.String()
			resp := w.Result()
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			got := httpfence.ResponseError(resp)
			if tt.want == nil {
				require.NoError(t, got)
			} else {
				require.ErrorIs(t, got, tt.want)
			}
			if tt.want == fencing.ErrStale {
				require.Equal(t, stale, got, "a hop loses nothing")
			}
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, text, string(rest), "the body can still be read")
		})
	}
}

func TestResponseErrorIgnoresOtherAnswers(t *testing.T) {
	ours := `{"type":"` + httpfence.TypeStale + `","resource":"a","got":"1","seen":"2"}`
	for name, tt := range map[string]struct {
		status            int
		contentType, body string
	}{
		"success":             {200, "application/problem+json", ours},
		"another media type":  {412, "application/json", ours},
		"no media type":       {412, "", ours},
		"another problem":     {412, "application/problem+json", `{"type":"about:blank"}`},
		"not JSON":            {412, "application/problem+json", `<html>`},
		"token out of range":  {412, "application/problem+json", strings.Replace(ours, `"2"`, `"-2"`, 1)},
		"more than the limit": {412, "application/problem+json", strings.Repeat(" ", 1<<20) + ours},
	} {
		t.Run(name, func(t *testing.T) {
			body := io.NopCloser(strings.NewReader(tt.body))
			resp := &http.Response{StatusCode: tt.status, Header: http.Header{"Content-Type": {tt.contentType}}, Body: body}
			require.NoError(t, httpfence.ResponseError(resp))
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, tt.body, string(rest))
		})
	}
	require.NoError(t, httpfence.ResponseError(&http.Response{StatusCode: 412, Header: http.Header{"Content-Type": {"application/problem+json"}}}))
}

func jsonField(t *testing.T, text []byte, name string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	value, _ := fields[name].(string)
	return value
}
