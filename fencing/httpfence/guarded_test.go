package httpfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/rwlock"
)

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

func TestGuarded(t *testing.T) {
	other := fence(fencing.Write, "stock", 99)
	for name, tt := range map[string]struct {
		request *http.Request
		status  int
		problem string // its type
		detail  string
	}{
		"current writer":    {request("POST", "/orders", fence(fencing.Write, "orders", 20)), 201, "", ""},
		"current reader":    {request("GET", "/orders", fence(fencing.Read, "orders", 18)), 201, "", ""},
		"writer that reads": {request("GET", "/orders", fence(fencing.Write, "orders", 20)), 201, "", ""},
		"several fences":    {request("PUT", "/orders", other, fence(fencing.Write, "orders", 20)), 201, "", ""},
		"stale writer": {
			request("POST", "/orders", fence(fencing.Write, "orders", 18)),
			412, httpfence.TypeStale, "has seen",
		},
		"stale reader": {
			request("GET", "/orders", fence(fencing.Read, "orders", 16)),
			412, httpfence.TypeStale, "has seen",
		},
		"no fence": {request("POST", "/orders"), 428, httpfence.TypeMissing, `"orders"`},
		"another resource's fence": {
			request("POST", "/orders", other),
			428, httpfence.TypeMissing, `"orders"`,
		},
		"no resource": {request("POST", "/", other), 428, httpfence.TypeMissing, `""`},
		"reader that writes": {
			request("POST", "/orders", fence(fencing.Read, "orders", 20)),
			428, httpfence.TypeMissing, "the method POST needs more",
		},
		"two fences of the resource": {
			request("POST", "/orders", fence(fencing.Write, "orders", 17), fence(fencing.Write, "orders", 20)),
			400, httpfence.TypeMalformed, "second fence",
		},
		"malformed": {malformedRequest(), 400, httpfence.TypeMalformed, "quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			var guard fencing.Watermark
			require.NoError(t, guard.Claim(fence(fencing.Write, "orders", 17)))
			require.NoError(t, guard.Claim(fence(fencing.Read, "orders", 19)))
			ran := false
			handler := httpfence.Guarded(&guard, byPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ran = true
				expect.NoError(fencing.Require(r.Context(), "orders")).In(t)
				w.Header().Set("Location", "/orders/1")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "done")
			}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, tt.request)
			require.Equal(t, tt.status, w.Code)
			if tt.problem == "" {
				require.True(t, ran)
				require.Equal(t, "done", w.Body.String())
				require.Equal(t, "/orders/1", w.Result().Header.Get("Location"))
				return
			}
			require.False(t, ran, "a refused request must not reach the handler")
			require.Equal(t, "application/problem+json", w.Result().Header.Get("Content-Type"))
			require.Contains(t, w.Body.String(), tt.problem)
			require.Contains(t, jsonField(t, w.Body.Bytes(), "detail"), tt.detail)
		})
	}
}

// What a handler leaves running hears that its access is over before a newer one can begin.
func TestTheContextEndsWithTheAccess(t *testing.T) {
	var inside context.Context
	guard := guardFunc(func(ctx context.Context, _ fencing.Fence, access func(context.Context) error) error {
		require.NoError(t, access(ctx))
		require.ErrorIs(t, inside.Err(), context.Canceled)
		return nil
	})
	handler := httpfence.Guarded(guard, byPath, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside = r.Context()
		require.NoError(t, inside.Err())
	}))
	handler.ServeHTTP(httptest.NewRecorder(), request("POST", "/orders", fence(fencing.Write, "orders", 17)))
	require.NotNil(t, inside)
}

func malformedRequest() *http.Request {
	r := request("POST", "/orders")
	r.Header.Set(fencing.HeaderName, "17")
	return r
}

func TestGuardedSendsNothingThatTheGuardDidNotComplete(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		status int
	}{
		"commit failed":    {errors.New("password=secret: connection reset"), 500},
		"stale at commit":  {&fencing.StaleError{Resource: "orders", Got: 17, Seen: 18}, 412},
		"out of patience":  {context.DeadlineExceeded, 503},
		"plainly stale":    {fencing.ErrStale, 412},
		"client has gone":  {context.Canceled, 503},
		"lock lost":        {errors.Join(errors.New("password=secret"), fencing.ErrLost), 412},
		"seen beyond 2^53": {&fencing.StaleError{Resource: "orders", Got: 17, Seen: fencing.MaxToken + 1}, 412},
	} {
		t.Run(name, func(t *testing.T) {
			guard := guardFunc(func(ctx context.Context, _ fencing.Fence, access func(context.Context) error) error {
				require.NoError(t, access(ctx))
				return tt.err
			})
			handler := httpfence.Guarded(guard, byPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/orders/1")
				_, _ = io.WriteString(w, "done")
			}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request("POST", "/orders", fence(fencing.Write, "orders", 17)))
			require.Equal(t, tt.status, w.Code)
			require.NotContains(t, w.Body.String(), "done")
			require.NotContains(t, w.Body.String(), "secret")
			require.Empty(t, w.Result().Header.Get("Location"))
		})
	}
}

func TestGuardedResponseIsTheHandlers(t *testing.T) {
	var guard fencing.Watermark
	serve := func(next http.HandlerFunc) *http.Response {
		w := httptest.NewRecorder()
		w.Header().Set("X-Before", "1")
		w.Header().Set("X-Kept", "1")
		httpfence.Guarded(&guard, byPath, next).ServeHTTP(w, request("GET", "/orders", fence(fencing.Read, "orders", 1)))
		return w.Result()
	}
	response := serve(func(w http.ResponseWriter, _ *http.Request) {
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		w.Header().Del("X-Before")
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(199)
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "lost")
		w.Header().Set("X-Sum", "42")
	})
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	require.Equal(t, []string{"1", "2"}, response.Header.Values("X-Two"))
	require.Equal(t, "1", response.Header.Get("X-Kept"))
	require.Empty(t, response.Header.Get("X-Before"))
	require.Empty(t, response.Header.Get("X-Late"))
	require.Equal(t, "42", response.Trailer.Get("X-Sum"), "a trailer may be set until the end")

	written := serve(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "done")
		w.Header().Set("X-Late", "lost")
	})
	require.Empty(t, written.Header.Get("X-Late"))

	silent := serve(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Set", "1") })
	require.Equal(t, http.StatusOK, silent.StatusCode)
	require.Equal(t, "1", silent.Header.Get("X-Set"))
}

func TestGuardedPanicLeavesNothing(t *testing.T) {
	var guard fencing.Watermark
	handler := httpfence.Guarded(&guard, byPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	}))
	w := httptest.NewRecorder()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		handler.ServeHTTP(w, request("POST", "/orders", fence(fencing.Write, "orders", 1)))
	})
	require.Empty(t, w.Body.String())
	require.NoError(t, guard.Claim(fence(fencing.Write, "orders", 1)))
}

// roundTripFunc is a RoundTripper of one function.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportSendsFencesAndOwner(t *testing.T) {
	const owner = "01K9Z3NDEKTSV4RRFFQ69G5FAV"
	var sent *http.Request
	transport := &httpfence.Transport{Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
	})}
	send := func(ctx context.Context) *http.Request {
		req := expect.NoError(http.NewRequestWithContext(ctx, "POST", "http://orders.test/", nil)).In(t)
		req.Header.Set("X-Own", "1")
		require.NoError(t, expect.NoError(transport.RoundTrip(req)).In(t).Body.Close())
		require.Len(t, req.Header, 1, "a RoundTripper must not change the request")
		return req
	}
	require.Same(t, send(t.Context()), sent, "without fences")

	ctx := fencing.NewContext(t.Context(), fence(fencing.Write, "orders", 17))
	ctx = fencing.NewContext(ctx, fence(fencing.Read, "stock", 3))
	send(fencing.NewOwnerContext(ctx, text(owner)))
	require.Equal(t, []string{`"3";lock="stock";mode=read`, `"17";lock="orders";mode=write`},
		sent.Header.Values(fencing.HeaderName))
	require.Equal(t, []string{`"` + owner + `"`}, sent.Header.Values(fencing.OwnerHeaderName))
	require.Equal(t, "1", sent.Header.Get("X-Own"))
}

// A batch holds the locks of many accounts, and calls the service about one of them.
func TestTransportRefusesWhatTheServiceWould(t *testing.T) {
	var guard fencing.Watermark
	served := 0
	handler := httpfence.Guarded(&guard, byPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	transport := &httpfence.Transport{Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		return answer.Result(), nil
	})}
	for _, n := range []int{64, 65, 300} {
		ctx := t.Context()
		for i := range n {
			ctx = fencing.NewContext(ctx, fence(fencing.Write, fmt.Sprint("account", i), 17))
		}
		send := func(ctx context.Context) (*http.Response, *closing, error) {
			body := &closing{Reader: strings.NewReader("deposit")}
			req := expect.NoError(http.NewRequestWithContext(ctx, "POST", "http://accounts.test/account3", body)).In(t)
			resp, err := transport.RoundTrip(req)
			require.Empty(t, req.Header)
			return resp, body, err
		}
		served = 0
		resp, body, err := send(ctx)
		if n == 64 {
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			continue
		}
		require.ErrorIs(t, err, fencing.ErrMalformed)
		require.ErrorContains(t, err, fmt.Sprintf("%d fences", n))
		require.ErrorContains(t, err, "Only")
		require.True(t, body.closed, "as every RoundTripper has to")
		require.Zero(t, served)

		resp, _, err = send(fencing.Only(ctx, "account3"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 1, served)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// text is a fmt.Stringer of its own text.
type text string

func (t text) String() string { return string(t) }

func TestExtractPutsFencesIntoTheContext(t *testing.T) {
	handler := httpfence.Extract(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := fencing.FromContext(r.Context(), "orders")
		_ = json.NewEncoder(w).Encode(ok)
		_ = json.NewEncoder(w).Encode(f.Token)
	}), fencing.MaxAhead(time.Minute))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, request("POST", "/", fence(fencing.Write, "orders", 17)))
	require.Equal(t, "true\n\"17\"\n", w.Body.String())

	w = httptest.NewRecorder()
	handler.ServeHTTP(w, request("POST", "/"))
	require.Equal(t, "false\n\"0\"\n", w.Body.String(), "a request without a fence passes")

	future := fencing.Token(time.Now().Add(time.Hour).UnixMicro())
	for _, r := range []*http.Request{malformedRequest(), request("POST", "/", fence(fencing.Write, "orders", future))} {
		w = httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, 400, w.Code)
	}
}

func jsonField(t *testing.T, text []byte, name string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	value, _ := fields[name].(string)
	return value
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fence(mode fencing.Mode, resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: mode}
}

// request has the fences in its header, as if it had been received.
func request(method, target string, fences ...fencing.Fence) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	for _, f := range fences {
		r.Header.Add(fencing.HeaderName, fencing.FormatHeader(f))
	}
	return r
}

// guardFunc is a Guard of one function.
type guardFunc func(context.Context, fencing.Fence, func(context.Context) error) error

func (g guardFunc) Do(ctx context.Context, f fencing.Fence, access func(context.Context) error) error {
	return g(ctx, f, access)
}

// Whatever a guard answers, its client gets an error: by the status, by the type and without a body.
func TestEveryProblemIsAnErrorForTheClient(t *testing.T) {
	secret := errors.New("password=secret: connection reset")
	stale := &fencing.StaleError{Resource: "orders", Got: 17, Seen: 18}
	long := &fencing.StaleError{Resource: `ü"` + strings.Repeat("\x00", 500), Got: 17, Seen: 18}
	lost := &rwlock.LostError{Name: "orders", Token: 17, Reason: rwlock.ReasonExpired, Err: secret}
	told := &fencing.LostError{Resource: "orders", Token: 17, Reason: "expired"}
	for name, tt := range map[string]struct {
		err    error
		status int
		kind   string
		want   error // what the client's error matches, if it is not a *GuardError
		typed  error // what it is, where there is a body
	}{
		"stale":                {stale, 412, httpfence.TypeStale, fencing.ErrStale, stale},
		"stale, wrapped":       {fmt.Errorf("save: %w", stale), 412, httpfence.TypeStale, fencing.ErrStale, stale},
		"stale, plainly":       {errors.Join(fencing.ErrStale, secret), 412, httpfence.TypeStale, fencing.ErrStale, nil},
		"lost":                 {lost, 412, httpfence.TypeLost, fencing.ErrLost, told},
		"lost, plainly":        {errors.Join(secret, rwlock.ErrLost), 412, httpfence.TypeLost, fencing.ErrLost, nil},
		"lost, after an error": {errors.Join(secret, lost), 412, httpfence.TypeLost, fencing.ErrLost, told},
		"lost, so cancelled":   {errors.Join(context.Canceled, lost), 412, httpfence.TypeLost, fencing.ErrLost, told},
		"lost, so refused":     {errors.Join(stale, lost), 412, httpfence.TypeStale, fencing.ErrStale, stale},
		"lost, before us":      {told, 412, httpfence.TypeLost, fencing.ErrLost, told},
		"missing": {
			errors.Join(fence(fencing.Read, "a", 0).Validate(), secret),
			428, httpfence.TypeMissing, fencing.ErrMissing, nil,
		},
		"malformed": {
			errors.Join(secret, fence(fencing.Mode(9), "orders", 1).Validate()),
			400, httpfence.TypeMalformed, fencing.ErrMalformed, nil,
		},
		"cancelled":       {context.Canceled, 503, httpfence.TypeBusy, nil, nil},
		"out of time":     {fmt.Errorf("waiting: %w", context.DeadlineExceeded), 503, httpfence.TypeBusy, nil, nil},
		"busy, then us":   {&httpfence.GuardError{Status: 503}, 503, httpfence.TypeBusy, nil, nil},
		"failed, so us":   {&httpfence.GuardError{Status: 500}, 500, httpfence.TypeFailed, nil, nil},
		"commit failed":   {secret, 500, httpfence.TypeFailed, nil, nil},
		"stale, and long": {long, 412, httpfence.TypeStale, fencing.ErrStale, long},
		"beyond any one": {
			&fencing.StaleError{Resource: "a", Got: 1, Seen: 1 << 60}, 412, httpfence.TypeStale, fencing.ErrStale, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, withBody := range []bool{true, false} {
				w := httptest.NewRecorder()
				httpfence.WriteProblem(w, tt.err)
				require.NotContains(t, w.Body.String(), "secret")
				require.Equal(t, tt.status, w.Code)
				text, resp := w.Body.String(), w.Result()
				require.Equal(t, tt.kind, resp.Header.Get(httpfence.ProblemHeaderName))
				require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
				require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
				require.True(t, json.Valid(w.Body.Bytes()))
				if !withBody { // of HEAD, or a proxy's own page
					resp.Body, text = http.NoBody, ""
				}
				failure := httpfence.ResponseError(resp)
				requireReported(t, failure, tt.status, tt.want)
				if withBody && tt.kind == httpfence.TypeMalformed {
					require.ErrorContains(t, failure, "mode", "what the service says of it")
				}
				if withBody && tt.typed != nil {
					resp.Body = io.NopCloser(strings.NewReader(text))
					require.Equal(t, tt.typed, httpfence.ResponseError(resp), "a hop loses nothing")
				}
				require.Equal(t, text, string(expect.NoError(io.ReadAll(resp.Body)).In(t)), "the body can still be read")
			}
		})
	}
}

func requireReported(t *testing.T, err error, status int, want error) {
	t.Helper()
	if want != nil {
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), `""`, "an error that names nothing says who reported it")
		return
	}
	failure, ok := errors.AsType[*httpfence.GuardError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, status, failure.Status)
	for _, cause := range []error{fencing.ErrStale, fencing.ErrLost, fencing.ErrMissing, fencing.ErrMalformed} {
		require.NotErrorIs(t, err, cause)
	}
}

// A body that is none of ours takes nothing away from the status and the field, and ours says nothing without them.
func TestResponseErrorOfOtherAnswers(t *testing.T) {
	const problem = "application/problem+json"
	ours := `{"type":"` + httpfence.TypeStale + `","resource":"a","got":"1","seen":"2"}`
	for name, tt := range map[string]struct {
		status            int
		kind              string
		contentType, body string
		stale             bool
	}{
		"another media type":     {412, httpfence.TypeStale, "application/json", ours, true},
		"no media type":          {412, httpfence.TypeStale, "", ours, true},
		"not JSON":               {412, httpfence.TypeStale, problem, `<html>`, true},
		"token out of range":     {412, httpfence.TypeStale, problem, strings.Replace(ours, `"2"`, `"-2"`, 1), true},
		"more than the limit":    {412, httpfence.TypeStale, problem, strings.Repeat(" ", 1<<20) + ours, true},
		"success":                {200, httpfence.TypeStale, problem, ours, false},
		"another status":         {428, httpfence.TypeStale, problem, ours, false},
		"another kind":           {412, "about:blank", problem, ours, false},
		"an If-Match that fails": {412, "", problem, ours, false},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{"Content-Type": {tt.contentType}, httpfence.ProblemHeaderName: {tt.kind}}
			resp := &http.Response{StatusCode: tt.status, Header: header, Body: io.NopCloser(strings.NewReader(tt.body))}
			err := httpfence.ResponseError(resp)
			rest, readErr := io.ReadAll(resp.Body)
			require.NoError(t, readErr)
			require.Equal(t, tt.body, string(rest))
			if !tt.stale {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fencing.ErrStale)
			_, detailed := errors.AsType[*fencing.StaleError](err)
			require.False(t, detailed, "%v", err)
			resp.Body = nil
			require.ErrorIs(t, httpfence.ResponseError(resp), fencing.ErrStale)
		})
	}
}

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
	target := expect.NoError(url.Parse(service)).In(t)
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
				r := expect.NoError(http.NewRequestWithContext(t.Context(), "POST", base+tt.path, nil)).In(t)
				if tt.fence != "" {
					r.Header.Set(fencing.HeaderName, tt.fence)
				}
				resp := expect.NoError(from.Do(r)).In(t)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, tt.status, resp.StatusCode, base)
				if tt.status != 204 {
					require.Error(t, httpfence.ResponseError(resp), "the gateway lets the refusal through")
				}
			}
		})
	}
}
