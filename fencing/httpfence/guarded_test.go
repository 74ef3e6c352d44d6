package httpfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
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
				_, err := fencing.Require(r.Context(), "orders")
				require.NoError(t, err)
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
	handler := httpfence.Guarded(&guard, byPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		w.Header().Del("X-Before")
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "lost")
	}))
	w := httptest.NewRecorder()
	w.Header().Set("X-Before", "1")
	w.Header().Set("X-Kept", "1")
	handler.ServeHTTP(w, request("GET", "/orders", fence(fencing.Read, "orders", 1)))

	response := w.Result()
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	require.Equal(t, []string{"1", "2"}, response.Header.Values("X-Two"))
	require.Equal(t, "1", response.Header.Get("X-Kept"))
	require.Empty(t, response.Header.Get("X-Before"))
	require.Empty(t, response.Header.Get("X-Late"))
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
