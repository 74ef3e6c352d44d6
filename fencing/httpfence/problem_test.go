package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/rwlock"
)

// Whatever a guard answers, its client gets an error: by the status, by the type and without a body.
func TestEveryProblemIsAnErrorForTheClient(t *testing.T) {
	secret := errors.New("password=secret: connection reset")
	stale := &fencing.StaleError{Resource: "orders", Got: 17, Seen: 18}
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
		"cancelled":     {context.Canceled, 503, httpfence.TypeBusy, nil, nil},
		"out of time":   {fmt.Errorf("waiting: %w", context.DeadlineExceeded), 503, httpfence.TypeBusy, nil, nil},
		"busy, then us": {&httpfence.GuardError{Status: 503}, 503, httpfence.TypeBusy, nil, nil},
		"failed, so us": {&httpfence.GuardError{Status: 500}, 500, httpfence.TypeFailed, nil, nil},
		"commit failed": {secret, 500, httpfence.TypeFailed, nil, nil},
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
				rest, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, text, string(rest), "the body can still be read")
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

func TestResponseErrorReadsLongProblems(t *testing.T) {
	stale := &fencing.StaleError{Resource: `ü"` + strings.Repeat("\x00", 500), Got: 17, Seen: 18}
	w := httptest.NewRecorder()
	httpfence.WriteProblem(w, stale)
	require.Equal(t, "no-store", w.Result().Header.Get("Cache-Control"))
	require.Equal(t, stale, httpfence.ResponseError(w.Result()))
}

// A body that is none of ours takes nothing away from the status and the field.
func TestResponseErrorWithAnotherBody(t *testing.T) {
	ours := `{"type":"` + httpfence.TypeStale + `","resource":"a","got":"1","seen":"2"}`
	for name, tt := range map[string]struct{ contentType, body string }{
		"another media type":  {"application/json", ours},
		"no media type":       {"", ours},
		"not JSON":            {"application/problem+json", `<html>`},
		"token out of range":  {"application/problem+json", strings.Replace(ours, `"2"`, `"-2"`, 1)},
		"more than the limit": {"application/problem+json", strings.Repeat(" ", 1<<20) + ours},
	} {
		t.Run(name, func(t *testing.T) {
			resp := response(412, httpfence.TypeStale, tt.contentType, tt.body)
			require.ErrorIs(t, httpfence.ResponseError(resp), fencing.ErrStale)
			rest, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, tt.body, string(rest))
		})
	}
	resp := response(412, httpfence.TypeStale, "application/problem+json", "")
	resp.Body = nil
	require.ErrorIs(t, httpfence.ResponseError(resp), fencing.ErrStale)
}

func TestResponseErrorIgnoresOtherAnswers(t *testing.T) {
	ours := `{"type":"` + httpfence.TypeStale + `","resource":"a","got":"1","seen":"2"}`
	for name, tt := range map[string]struct {
		status int
		kind   string
	}{
		"success":                {200, httpfence.TypeStale},
		"another status":         {428, httpfence.TypeStale},
		"another kind":           {412, "about:blank"},
		"an If-Match that fails": {412, ""},
		"the handler's own":      {500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp := response(tt.status, tt.kind, "application/problem+json", ours)
			require.NoError(t, httpfence.ResponseError(resp))
		})
	}
}

func response(status int, kind, contentType, body string) *http.Response {
	header := http.Header{"Content-Type": {contentType}}
	header.Set(httpfence.ProblemHeaderName, kind)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Header: header, Body: io.NopCloser(strings.NewReader(body)),
	}
}
