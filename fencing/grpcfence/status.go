package grpcfence

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed74116694/fencelock/fencing"
)

// What the ErrorInfo of a refusal says, for callers in other languages. That of a
// stale call has the metadata "resource", "got" and "seen", tokens in decimal
// digits.
const (
	Domain          = "github.com/seed74116694/fencelock"
	ReasonStale     = "FENCING_STALE"     // FailedPrecondition; trying again is of no use
	ReasonMissing   = "FENCING_MISSING"   // FailedPrecondition
	ReasonMalformed = "FENCING_MALFORMED" // InvalidArgument
)

// ToStatus returns the status for an error that matches [fencing.ErrStale],
// [fencing.ErrMissing] or [fencing.ErrMalformed], with err's text as its message,
// and for one that says that a context ended. Any other error, nil and one that
// is a status already included, is returned as it is.
func ToStatus(err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	var stale *fencing.StaleError
	switch {
	case errors.As(err, &stale):
		return refusal(codes.FailedPrecondition, ReasonStale, err, map[string]string{
			"resource": stale.Resource, "got": stale.Got.String(), "seen": stale.Seen.String(),
		})
	case errors.Is(err, fencing.ErrStale):
		return refusal(codes.FailedPrecondition, ReasonStale, err, nil)
	case errors.Is(err, fencing.ErrMissing):
		return refusal(codes.FailedPrecondition, ReasonMissing, err, nil)
	case errors.Is(err, fencing.ErrMalformed):
		return refusal(codes.InvalidArgument, ReasonMalformed, err, nil)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return err
}

func refusal(code codes.Code, reason string, err error, metadata map[string]string) error {
	st := status.New(code, err.Error())
	detailed, detailErr := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: metadata})
	if detailErr != nil { // the code and the message say enough
		return st.Err()
	}
	return detailed.Err()
}

// FromStatus returns what a service reported with [ToStatus]: a
// [*fencing.StaleError], or an error that matches [fencing.ErrMissing] or
// [fencing.ErrMalformed]. For any other error, and for none, it returns nil.
func FromStatus(err error) error {
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != Domain {
			continue
		}
		switch info.GetReason() {
		case ReasonStale:
			return staleFrom(info.GetMetadata())
		case ReasonMissing:
			return fmt.Errorf("%w: reported by the service: %w", fencing.ErrMissing, err)
		case ReasonMalformed:
			return fmt.Errorf("%w: reported by the service: %w", fencing.ErrMalformed, err)
		}
	}
	return nil
}

// staleFrom leaves out what is no token: the refusal counts, whatever its detail.
func staleFrom(metadata map[string]string) error {
	stale := &fencing.StaleError{Resource: metadata["resource"]}
	stale.Got, _ = fencing.ParseToken(metadata["got"])
	stale.Seen, _ = fencing.ParseToken(metadata["seen"])
	return stale
}
