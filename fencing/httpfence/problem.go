package httpfence

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// The types of problem bodies: they tell these answers from others with the same
// status, such as the 412 of an If-Match.
const (
	TypeStale     = typeBase + "TypeStale"     // 412: the token is out of date; trying again is of no use
	TypeMissing   = typeBase + "TypeMissing"   // 428: the request carries no fence, or a reader's where it writes
	TypeMalformed = typeBase + "TypeMalformed" // 400: the header is malformed

	typeBase = "https://pkg.go.dev/github.com/seed74116694/fencelock/fencing/httpfence#"
)

const problemMediaType = "application/problem+json"

// problem is the body of a refusal (RFC 9457). The last three members are an
// extension for a stale token.
type problem struct {
	Type     string        `json:"type"`
	Title    string        `json:"title"`
	Status   int           `json:"status"`
	Detail   string        `json:"detail,omitempty"`
	Resource string        `json:"resource,omitempty"`
	Got      fencing.Token `json:"got,omitempty"`
	Seen     fencing.Token `json:"seen,omitempty"`
}

// WriteProblem answers a request that err has ended: with 412, 428 or 400 for an
// error that matches [fencing.ErrStale], [fencing.ErrMissing] or
// [fencing.ErrMalformed], and with err's text as the detail. Of any other error it
// keeps the text to itself: it answers with 503 if err says that a context ended,
// so the resource was busy for too long, and with 500 otherwise.
func WriteProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	body, encodeErr := json.Marshal(p)
	if encodeErr != nil { // a guard's token out of range; the status says enough
		body = []byte("{}")
	}
	h := w.Header()
	h.Set("Content-Type", problemMediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

func problemOf(err error) problem {
	var stale *fencing.StaleError
	switch {
	case errors.As(err, &stale):
		return problem{
			Type: TypeStale, Title: "Stale fencing token", Status: http.StatusPreconditionFailed,
			Detail: err.Error(), Resource: stale.Resource, Got: stale.Got, Seen: stale.Seen,
		}
	case errors.Is(err, fencing.ErrStale):
		return problem{
			Type: TypeStale, Title: "Stale fencing token",
			Status: http.StatusPreconditionFailed, Detail: err.Error(),
		}
	case errors.Is(err, fencing.ErrMissing):
		return problem{
			Type: TypeMissing, Title: "Fencing token required",
			Status: http.StatusPreconditionRequired, Detail: err.Error(),
		}
	case errors.Is(err, fencing.ErrMalformed):
		return problem{
			Type: TypeMalformed, Title: "Malformed fencing token",
			Status: http.StatusBadRequest, Detail: err.Error(),
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return untyped(http.StatusServiceUnavailable)
	default:
		return untyped(http.StatusInternalServerError)
	}
}

func untyped(status int) problem {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status}
}
