package joined_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/joined"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrors(t *testing.T) {
	require.NoError(t, joined.Errors())
	require.NoError(t, joined.Errors(nil, nil))
	require.Equal(t, io.EOF, joined.Errors(nil, io.EOF, nil), "one is itself")

	failed := &fs.PathError{Op: "write", Path: "orders", Err: fs.ErrClosed}
	err := joined.Errors(failed, nil, io.EOF)
	require.EqualError(t, err, "write orders: file already closed; EOF")
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, err, fs.ErrClosed)
	found, ok := errors.AsType[*fs.PathError](err)
	require.True(t, ok)
	require.Same(t, failed, found)
}

func TestErrorsHaveOneLine(t *testing.T) {
	inner := errors.Join(errors.New("a"), errors.New("b"))
	err := joined.Errors(fmt.Errorf("work: %w", inner), joined.Errors(errors.New("c\r\n  d\n"), io.EOF))
	require.EqualError(t, err, "work: a; b; c; d; EOF")
}

// Errors are compared with ==, which panics for two of a type that cannot be compared.
func TestErrorsCanBeCompared(t *testing.T) {
	err := joined.Errors(io.EOF, fs.ErrClosed)
	require.NotPanics(t, func() { require.NotErrorIs(t, err, joined.Errors(io.EOF, fs.ErrClosed)) })
}

func TestPart(t *testing.T) {
	read := fmt.Errorf("read: %w", io.EOF)
	require.Equal(t, read, joined.Part(read, io.EOF))
	require.Equal(t, read, joined.Part(joined.Errors(fs.ErrClosed, read, io.EOF), io.EOF), "the first that matches")
	within := errors.Join(fs.ErrExist, joined.Errors(fs.ErrClosed, read))
	require.Equal(t, read, joined.Part(within, io.EOF), "inside another")
	other := errors.Join(fs.ErrExist, fs.ErrClosed)
	require.Equal(t, other, joined.Part(other, io.EOF), "none matches")
}
