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
	lost := &fencing.LostError{Resource: "orders/42", Token: 17, Reason: "expired"}
	notFound := status.Error(codes.NotFound, "no")
	disk := errors.New("disk full")
	for name, tt := range map[string]struct {
		err  error
		code codes.Code
		want error // what the caller's error matches; nil where it stays as it is
	}{
		"stale":                 {stale, codes.FailedPrecondition, fencing.ErrStale},
		"wrapped stale":         {fmt.Errorf("update: %w", stale), codes.FailedPrecondition, fencing.ErrStale},
		"plainly stale":         {fencing.ErrStale, codes.FailedPrecondition, fencing.ErrStale},
		"lost":                  {lost, codes.FailedPrecondition, fencing.ErrLost},
		"stale, and an error":   {errors.Join(fencing.ErrStale, disk), codes.FailedPrecondition, fencing.ErrStale},
		"plainly lost":          {fencing.ErrLost, codes.FailedPrecondition, fencing.ErrLost},
		"lost after an error":   {errors.Join(disk, lost), codes.FailedPrecondition, fencing.ErrLost},
		"lost, so cancelled":    {errors.Join(context.Canceled, lost), codes.FailedPrecondition, fencing.ErrLost},
		"lost, so a call ended": {errors.Join(notFound, lost), codes.FailedPrecondition, fencing.ErrLost},
		"lost, so refused":      {errors.Join(lost, stale), codes.FailedPrecondition, fencing.ErrStale},
		"missing":               {fence(fencing.Read, 0).Validate(), codes.FailedPrecondition, fencing.ErrMissing},
		"malformed":             {fence(0, 1).Validate(), codes.InvalidArgument, fencing.ErrMalformed},
		"deadline":              {fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded, nil},
		"cancelled":             {context.Canceled, codes.Canceled, nil},
		"a status":              {notFound, codes.NotFound, nil},
		"anything else":         {disk, codes.Unknown, nil},
		"nothing at all":        {nil, codes.OK, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sent := grpcfence.ToStatus(tt.err)
			require.Equal(t, tt.code, status.Code(sent))
			require.Equal(t, sent, grpcfence.ToStatus(sent), "a status stays what it is")
			got := grpcfence.FromStatus(sent)
			if tt.want == nil {
				require.Equal(t, sent, got, "a call that failed stays one that failed")
				return
			}
			require.ErrorIs(t, got, tt.want)
			require.NotContains(t, got.Error(), `""`, "an error that names nothing says that the service reported it")
			require.NotContains(t, status.Convert(sent).Message(), "\n")
			passedOn := grpcfence.ToStatus(got)
			require.Equal(t, tt.code, status.Code(passedOn))
			require.ErrorIs(t, grpcfence.FromStatus(passedOn), tt.want, "over another hop")
		})
	}
	require.Equal(t, stale, grpcfence.FromStatus(grpcfence.ToStatus(stale)), "a hop loses nothing")
	require.Equal(t, lost, grpcfence.FromStatus(grpcfence.ToStatus(lost)))
}

func TestFromStatusIgnoresOtherDomains(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "no").WithDetails(
		&errdetails.RetryInfo{},
		&errdetails.ErrorInfo{Reason: grpcfence.ReasonStale, Domain: "elsewhere"},
		&errdetails.ErrorInfo{Reason: "ANOTHER", Domain: grpcfence.Domain},
	)
	require.NoError(t, err)
	require.Equal(t, st.Err(), grpcfence.FromStatus(st.Err()))
	plain := errors.New("no status")
	require.Equal(t, plain, grpcfence.FromStatus(plain))
}
