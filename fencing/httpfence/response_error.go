package httpfence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// maxProblem is the most that is read of a problem body, in bytes. The bodies of this package have at most some 8 KiB:
// a name of 512 bytes, escaped by JSON, twice.
const maxProblem = 16 << 10

// GuardError is the answer of a guard that could not decide or complete: a 503 or a 500 of [WriteProblem]. It does not
// report on the token, and leaves open whether the request was carried out. Retry if carrying it out twice is harmless.
type GuardError struct {
	Status int    // 503 or 500
	From   string // the origin of the answer: the request's method and address, if known
}

// Error names the origin of the answer, and adds that the request may have been carried out.
func (e *GuardError) Error() string {
	return "httpfence: the guard failed, the request may have been carried out: " + e.From
}

// ResponseError returns the error that a service reported with [WriteProblem]: a [*fencing.StaleError], a
// [*fencing.LostError], an error that matches [fencing.ErrMissing] or [fencing.ErrMalformed], or a [*GuardError]. It
// recognizes these answers by the field [ProblemHeaderName] and the status; the body only adds details. So it never
// returns nil for a refusal of a guard, including the answer to a HEAD request. For any other response it returns nil,
// even for a failed one, which comes from the handler itself: check resp.StatusCode. The body can still be read from
// its beginning, and the caller must still close it.
func ResponseError(resp *http.Response) error {
	name := resp.Header.Get(ProblemHeaderName)
	if k, known := kinds[name]; !known || k.status != resp.StatusCode {
		return nil
	}
	switch p := body(resp); name {
	case TypeStale:
		if p.Resource == "" {
			return reported(fencing.ErrStale, p, resp)
		}
		return &fencing.StaleError{Resource: p.Resource, Got: p.Got, Seen: p.Seen}
	case TypeLost:
		if p.Resource == "" {
			return reported(fencing.ErrLost, p, resp)
		}
		return &fencing.LostError{Resource: p.Resource, Token: p.Got, Reason: p.Reason}
	case TypeMissing:
		return reported(fencing.ErrMissing, p, resp)
	case TypeMalformed:
		return reported(fencing.ErrMalformed, p, resp)
	default:
		return &GuardError{Status: resp.StatusCode, From: from(resp)}
	}
}

// body parses the problem, empty if the body is not a problem, and leaves the body readable from its beginning.
func body(resp *http.Response) (p problem) {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || mediaType != problemMediaType || resp.Body == nil {
		return problem{}
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	resp.Body = &unread{Reader: io.MultiReader(bytes.NewReader(text), resp.Body), Closer: resp.Body}
	if err != nil || json.Unmarshal(text, &p) != nil {
		return problem{}
	}
	return p
}

// reported returns the error for a cause, with the details that the service reported.
func reported(cause error, p problem, resp *http.Response) error {
	if p.Detail == "" {
		return fmt.Errorf("%w: reported by %s", cause, from(resp))
	}
	return fmt.Errorf("%w: reported by %s: %s", cause, from(resp), p.Detail)
}

// from names the origin of the answer by its request, if there is one.
func from(resp *http.Response) string {
	if resp.Request == nil || resp.Request.URL == nil {
		return resp.Status
	}
	return fmt.Sprintf("%s %s: %s", resp.Request.Method, resp.Request.URL.Redacted(), resp.Status)
}

type unread struct {
	io.Reader
	io.Closer
}
