package ctxerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/ctxerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLost = errors.New("lost")

func endedBy(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

func TestCause(t *testing.T) {
	require.Equal(t, context.Canceled, ctxerr.Cause(endedBy(t, nil)))
	err := ctxerr.Cause(endedBy(t, errLost))
	require.EqualError(t, err, "lost")
	require.ErrorIs(t, err, errLost)
	require.ErrorIs(t, err, context.Canceled)
	told := fmt.Errorf("%w: %w", errLost, context.Canceled)
	require.Equal(t, told, ctxerr.Cause(endedBy(t, told)), "a cause that matches is enough")
}

func TestWithCause(t *testing.T) {
	ended := endedBy(t, errLost)
	require.NoError(t, ctxerr.WithCause(ended, nil))
	err := ctxerr.WithCause(ended, fmt.Errorf("begin: %w", context.Canceled))
	require.EqualError(t, err, "begin: context canceled: lost")
	require.ErrorIs(t, err, errLost)
	require.ErrorIs(t, err, context.Canceled)

	for name, c := range map[string]struct {
		ctx context.Context
		err error
	}{
		"of another cause":          {ended, errors.New("deadlock")},
		"of a context inside":       {t.Context(), context.Canceled},
		"of a context without one":  {endedBy(t, nil), context.Canceled},
		"of another kind of end":    {ended, context.DeadlineExceeded},
		"that tells the cause":      {ended, err},
		"that tells only the cause": {ended, errLost},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.err, ctxerr.WithCause(c.ctx, c.err)) })
	}
}
