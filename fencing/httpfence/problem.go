package httpfence

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// ProblemHeaderName is the field that marks a response as written by a guard. Its value is one of the types below, the
// same as in the body: the answer to a HEAD request has no body, and intermediaries may replace one.
const ProblemHeaderName = "Fencing-Problem"

// The types of problem bodies. They distinguish these answers from other answers with the same status, such as the 412
// of an If-Match.
const (
	TypeStale     = typeBase + "TypeStale"     // 412: the token is out of date; retrying does not help
	TypeLost      = typeBase + "TypeLost"      // 412: the lock was lost while the request was served
	TypeMissing   = typeBase + "TypeMissing"   // 428: no fence, or a reader's fence and an unsafe method
	TypeMalformed = typeBase + "TypeMalformed" // 400: the header is malformed
	TypeBusy      = typeBase + "TypeBusy"      // 503: a context ended, for example the resource was busy too long
	TypeFailed    = typeBase + "TypeFailed"    // 500: anything else

	typeBase = "https://pkg.go.dev/github.com/seed74116694/fencelock/fencing/httpfence#"
)

const problemMediaType = "application/problem+json"

// problem is the body of a refusal (RFC 9457). The last four members are an
// extension for a stale token and a lost lock.
type problem struct {
	Type     string        `json:"type"`
	Title    string        `json:"title"`
	Status   int           `json:"status"`
	Detail   string        `json:"detail,omitempty"`
	Resource string        `json:"resource,omitempty"`
	Got      fencing.Token `json:"got,omitempty"`
	Seen     fencing.Token `json:"seen,omitempty"`
	Reason   string        `json:"reason,omitempty"`
}

// WriteProblem answers a request that failed with err, which may be several joined errors. The first of these causes
// decides:
//
//	fencing.ErrStale            412, TypeStale: a guard refused, nothing was done
//	fencing.ErrLost             412, TypeLost: the handler's section has lost its lock
//	fencing.ErrMissing          428, TypeMissing
//	fencing.ErrMalformed        400, TypeMalformed
//	a context that has ended    503, TypeBusy
//	a [*GuardError]             unchanged: the next service reported it
//	anything else               500, TypeFailed
//
// The detail is the text of that cause. The text of any other error, joined to it or alone, is internal to the service
// and is not sent. [ResponseError] turns each of the answers back into an error.
func WriteProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	body, encodeErr := json.Marshal(p)
	if encodeErr != nil { // a guard's token is out of range; the status suffices
		body = []byte("{}")
	}
	h := w.Header()
	h.Set(ProblemHeaderName, p.Type)
	h.Set("Content-Type", problemMediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

func problemOf(err error) problem {
	var guard *GuardError
	switch {
	case errors.Is(err, fencing.ErrStale):
		return staleProblem(err)
	case errors.Is(err, fencing.ErrLost):
		return lostProblem(err)
	case errors.Is(err, fencing.ErrMissing):
		return kinds[TypeMissing].problem(part(err, fencing.ErrMissing).Error())
	case errors.Is(err, fencing.ErrMalformed):
		return kinds[TypeMalformed].problem(part(err, fencing.ErrMalformed).Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return kinds[TypeBusy].problem("")
	case errors.As(err, &guard) && guard.Status == http.StatusServiceUnavailable:
		return kinds[TypeBusy].problem("")
	default:
		return kinds[TypeFailed].problem("")
	}
}

func staleProblem(err error) problem {
	var stale *fencing.StaleError
	if !errors.As(err, &stale) {
		return kinds[TypeStale].problem(part(err, fencing.ErrStale).Error())
	}
	p := kinds[TypeStale].problem(stale.Error())
	p.Resource, p.Got, p.Seen = stale.Resource, stale.Got, stale.Seen
	return p
}

func lostProblem(err error) problem {
	var lost *fencing.LostError
	if !errors.As(err, &lost) {
		return kinds[TypeLost].problem(part(err, fencing.ErrLost).Error())
	}
	p := kinds[TypeLost].problem(lost.Error())
	p.Resource, p.Got, p.Reason = lost.Resource, lost.Token, lost.Reason
	return p
}

// part returns the first error that matches target among errors that any function joined, so that its text covers that
// error only. It returns an error that is not joined as it is.
func part(err, target error) error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, one := range several.Unwrap() {
		if errors.Is(one, target) {
			return part(one, target)
		}
	}
	return err
}
