package httpfence_test

import (
	"context"
	"encoding/json"
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

// A body that is none of ours takes nothing away from the status and the field, and one of ours says nothing without
// them.
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
