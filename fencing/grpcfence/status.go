package grpcfence

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed74116694/fencelock/fencing"
)

// The reasons in the ErrorInfo of a refusal, for callers in other languages. A stale call has the metadata "resource",
// "got" and "seen", with tokens in decimal digits; a lost lock has "resource", "got" and "reason".
const (
	Domain          = "github.com/seed74116694/fencelock"
	ReasonStale     = "FENCING_STALE"     // FailedPrecondition; retrying does not help
	ReasonLost      = "FENCING_LOST"      // FailedPrecondition; the handler's section has lost its lock
	ReasonMissing   = "FENCING_MISSING"   // FailedPrecondition
	ReasonMalformed = "FENCING_MALFORMED" // InvalidArgument
)

// ToStatus returns the status for an error that ends a call, which may be several joined errors. The first of these
// causes decides:
//
//	fencing.ErrStale        FailedPrecondition: a guard refused, nothing was done
//	fencing.ErrLost         FailedPrecondition: the handler's section has lost its lock
//	fencing.ErrMissing      FailedPrecondition
//	fencing.ErrMalformed    InvalidArgument
//	a status                as it is
//	a context that ended    DeadlineExceeded or Canceled
//
// A refusal that another service reported is passed on unchanged. Any other error, and nil, is returned unchanged.
func ToStatus(err error) error {
	if refused(err) != nil {
		return err
	}
	switch {
	case errors.Is(err, fencing.ErrStale):
		return staleStatus(err)
	case errors.Is(err, fencing.ErrLost):
		return lostStatus(err)
	case errors.Is(err, fencing.ErrMissing):
		return refusal(codes.FailedPrecondition, ReasonMissing, err, nil)
	case errors.Is(err, fencing.ErrMalformed):
		return refusal(codes.InvalidArgument, ReasonMalformed, err, nil)
	}
	if _, is := status.FromError(err); is {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return err
}

func staleStatus(err error) error {
	var stale *fencing.StaleError
	if !errors.As(err, &stale) {
		return refusal(codes.FailedPrecondition, ReasonStale, err, nil)
	}
	return refusal(codes.FailedPrecondition, ReasonStale, stale, map[string]string{
		"resource": stale.Resource, "got": stale.Got.String(), "seen": stale.Seen.String(),
	})
}

func lostStatus(err error) error {
	var lost *fencing.LostError
	if !errors.As(err, &lost) {
		return refusal(codes.FailedPrecondition, ReasonLost, err, nil)
	}
	return refusal(codes.FailedPrecondition, ReasonLost, lost, map[string]string{
		"resource": lost.Resource, "got": lost.Token.String(), "reason": lost.Reason,
	})
}

func refusal(code codes.Code, reason string, err error, metadata map[string]string) error {
	st := status.New(code, strings.ReplaceAll(err.Error(), "\n", "; ")) // errors.Join has a line for each error
	detailed, detailErr := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: metadata})
	if detailErr != nil { // without details, the code and the message suffice
		return st.Err()
	}
	return detailed.Err()
}

// FromStatus returns the error that a service reported with [ToStatus]: a [*fencing.StaleError], a
// [*fencing.LostError], or an error that matches [fencing.ErrMissing] or [fencing.ErrMalformed]. Any other error is
// returned unchanged, so a failed call never becomes a successful one.
func FromStatus(err error) error {
	if reported := refused(err); reported != nil {
		return reported
	}
	return err
}

// refused returns the refusal in a status, or nil if err has none.
func refused(err error) error {
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != Domain {
			continue
		}
		switch metadata := info.GetMetadata(); info.GetReason() {
		case ReasonStale:
			if metadata["resource"] == "" {
				return reported(fencing.ErrStale, err)
			}
			return &fencing.StaleError{
				Resource: metadata["resource"], Got: token(metadata["got"]), Seen: token(metadata["seen"]),
			}
		case ReasonLost:
			if metadata["resource"] == "" {
				return reported(fencing.ErrLost, err)
			}
			return &fencing.LostError{
				Resource: metadata["resource"], Token: token(metadata["got"]), Reason: metadata["reason"],
			}
		case ReasonMissing:
			return reported(fencing.ErrMissing, err)
		case ReasonMalformed:
			return reported(fencing.ErrMalformed, err)
		}
	}
	return nil
}

func reported(cause, err error) error {
	return fmt.Errorf("%w: reported by the service: %w", cause, err)
}

// token returns zero for digits that are not a token: the refusal counts even if its detail is malformed.
func token(digits string) fencing.Token {
	t, err := fencing.ParseToken(digits)
	if err != nil {
		return 0
	}
	return t
}
