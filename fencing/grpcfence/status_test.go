package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/grpcfence"
)

func TestToStatus(t *testing.T) {
	stale := &fencing.StaleError{Resource: "orders/42", Got: 17, Seen: 18}
	for name, tt := range map[string]struct {
		err  error
		code codes.Code
		want error // what the caller sees
	}{
		"stale":          {stale, codes.FailedPrecondition, fencing.ErrStale},
		"wrapped stale":  {fmt.Errorf("update: %w", stale), codes.FailedPrecondition, fencing.ErrStale},
		"plainly stale":  {fencing.ErrStale, codes.FailedPrecondition, fencing.ErrStale},
		"missing":        {fence(fencing.Read, 0).Validate(), codes.FailedPrecondition, fencing.ErrMissing},
		"malformed":      {fence(0, 1).Validate(), codes.InvalidArgument, fencing.ErrMalformed},
		"deadline":       {fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded, nil},
		"cancelled":      {context.Canceled, codes.Canceled, nil},
		"a status":       {status.Error(codes.NotFound, "no"), codes.NotFound, nil},
		"anything else":  {errors.New("disk full"), codes.Unknown, nil},
		"nothing at all": {nil, codes.OK, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := grpcfence.ToStatus(tt.err)
			require.Equal(t, tt.code, status.Code(got))
			require.Equal(t, got, grpcfence.ToStatus(got), "a status stays what it is")
			if tt.want == nil {
				require.NoError(t, grpcfence.FromStatus(got))
				return
			}
			require.ErrorIs(t, grpcfence.FromStatus(got), tt.want)
		})
	}
	require.Equal(t, stale, grpcfence.FromStatus(grpcfence.ToStatus(stale)), "a hop loses nothing")
}

func TestFromStatusIgnoresOtherDomains(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "no").WithDetails(
		&errdetails.RetryInfo{},
		&errdetails.ErrorInfo{Reason: grpcfence.ReasonStale, Domain: "elsewhere"},
		&errdetails.ErrorInfo{Reason: "ANOTHER", Domain: grpcfence.Domain},
	)
	require.NoError(t, err)
	require.NoError(t, grpcfence.FromStatus(st.Err()))
	require.NoError(t, grpcfence.FromStatus(errors.New("no status")))
}
