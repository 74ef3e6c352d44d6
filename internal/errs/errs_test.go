package errs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrors(t *testing.T) {
	require.NoError(t, errs.Join())
	require.NoError(t, errs.Join(nil, nil))
	require.Equal(t, io.EOF, errs.Join(nil, io.EOF, nil), "one is itself")

	failed := &fs.PathError{Op: "write", Path: "orders", Err: fs.ErrClosed}
	err := errs.Join(failed, nil, io.EOF)
	require.EqualError(t, err, "write orders: file already closed; EOF")
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, fs.ErrClosed)
	found, ok := errors.AsType[*fs.PathError](err)
	require.True(t, ok)
	require.Same(t, failed, found)
}

func TestErrorsHaveOneLine(t *testing.T) {
	inner := errors.Join(errors.New("a"), errors.New("b"))
	err := errs.Join(fmt.Errorf("work: %w", inner), errs.Join(errors.New("c\r\n  d\n"), io.EOF))
	require.EqualError(t, err, "work: a; b; c; d; EOF")
}

// Errors are compared with ==, which panics for two of a type that cannot be compared.
func TestErrorsCanBeCompared(t *testing.T) {
	err := errs.Join(io.EOF, fs.ErrClosed)
	require.NotPanics(t, func() { require.NotErrorIs(t, err, errs.Join(io.EOF, fs.ErrClosed)) })
}

var (
	errWork  = errors.New("disk full")
	errLost  = errors.New("lease of a lost")
	errOther = errors.New("lease of b lost")
)

func TestOutcome(t *testing.T) {
	inner := errs.Outcome(nil, errLost)
	const returned, bothLost = "; the work had returned without an error", "lease of a lost; lease of b lost"
	insideAndOut := "lease of a lost" + returned + "; lease of b lost"
	for name, c := range map[string]struct {
		work      error
		losses    []error
		text      string
		completed bool
	}{
		"nothing was lost":           {nil, []error{nil, nil}, "", false},
		"the work failed":            {errWork, []error{nil}, "disk full", false},
		"lost, and had returned":     {nil, []error{errLost}, "lease of a lost" + returned, true},
		"two lost":                   {nil, []error{errLost, errOther}, bothLost + returned, true},
		"lost, the work failed":      {errWork, []error{errLost}, "disk full; lease of a lost", false},
		"the work returned the loss": {errLost, []error{errLost}, "lease of a lost", false},
		"the work wrapped the loss":  {fmt.Errorf("save: %w", errLost), []error{errLost}, "save: lease of a lost", false},
		"a section inside was lost":  {inner, nil, "lease of a lost" + returned, false},
		"inside, and this one":       {inner, []error{errOther}, insideAndOut, false},
		"the lease of that inside":   {inner, []error{errLost}, "lease of a lost" + returned, false},
		"three sections":             {errs.Outcome(inner, errLost), []error{errLost}, "lease of a lost" + returned, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := errs.Outcome(c.work, c.losses...)
			require.Equal(t, c.completed, errs.Completed(err))
			require.Equal(t, c.completed, errs.Completed(fmt.Errorf("call: %w", err)))
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.text)
			for _, part := range append(c.losses, c.work) {
				if part != nil {
					require.ErrorIs(t, err, part)
				}
			}
		})
	}
}

func endedBy(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

func TestCause(t *testing.T) {
	require.Equal(t, context.Canceled, errs.Cause(endedBy(t, nil)))
	err := errs.Cause(endedBy(t, errLost))
	require.EqualError(t, err, "lease of a lost")
	require.ErrorIs(t, err, errLost)
	require.ErrorIs(t, err, context.Canceled)
	told := fmt.Errorf("%w: %w", errLost, context.Canceled)
	require.Equal(t, told, errs.Cause(endedBy(t, told)), "a cause that matches is enough")
}

func TestWithCause(t *testing.T) {
	ended := endedBy(t, errLost)
	require.NoError(t, errs.WithCause(ended, nil))
	err := errs.WithCause(ended, fmt.Errorf("begin: %w", context.Canceled))
	require.EqualError(t, err, "begin: context canceled: lease of a lost")
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
		t.Run(name, func(t *testing.T) { require.Equal(t, c.err, errs.WithCause(c.ctx, c.err)) })
	}
}
