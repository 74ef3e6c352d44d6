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

// maxProblem is the most that is read of a problem body, in bytes; ours have at
// most some 5 KiB, for a name of 512 bytes that JSON escapes twice.
const maxProblem = 16 << 10

// ResponseError returns the error that a service reported with [WriteProblem]:
// a [*fencing.StaleError], or one that matches [fencing.ErrMissing] or
// [fencing.ErrMalformed]. For any other response, a failed one included, it
// returns nil. The body can still be read from its beginning, and is still the
// caller's to close.
func ResponseError(resp *http.Response) error {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || mediaType != problemMediaType || resp.Body == nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	resp.Body = &unread{Reader: io.MultiReader(bytes.NewReader(text), resp.Body), Closer: resp.Body}
	var p problem
	if err != nil || json.Unmarshal(text, &p) != nil {
		return nil
	}
	switch {
	case p.Type == TypeStale && resp.StatusCode == http.StatusPreconditionFailed:
		return &fencing.StaleError{Resource: p.Resource, Got: p.Got, Seen: p.Seen}
	case p.Type == TypeMissing && resp.StatusCode == http.StatusPreconditionRequired:
		return fmt.Errorf("%w: %s", fencing.ErrMissing, reported(resp))
	case p.Type == TypeMalformed && resp.StatusCode == http.StatusBadRequest:
		return fmt.Errorf("%w: %s", fencing.ErrMalformed, reported(resp))
	}
	return nil
}

// reported names who refused, by the request where there is one.
func reported(resp *http.Response) string {
	if resp.Request == nil || resp.Request.URL == nil {
		return resp.Status
	}
	return fmt.Sprintf("%s %s: %s", resp.Request.Method, resp.Request.URL.Redacted(), resp.Status)
}

type unread struct {
	io.Reader
	io.Closer
}
