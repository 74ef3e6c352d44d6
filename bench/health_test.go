package main

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// atFirstLine calls strike when the first line of progress is written: in the middle of the work.
type atFirstLine struct {
	bytes.Buffer
	once   sync.Once
	strike func()
}

func (w *atFirstLine) Write(p []byte) (int, error) {
	w.once.Do(w.strike)
	return w.Buffer.Write(p)
}

func TestServersDieMidway(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(*testredis.Server){
		"killed": (*testredis.Server).Kill,
		"frozen": (*testredis.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			stderr := &atFirstLine{strike: func() { strike(server) }}
			status := run(t.Context(), []string{"-addr", server.Addr(), "-for", "2s", "-clients", "2"}, io.Discard, stderr)
			require.Equal(t, statusViolated, status)
			require.Contains(t, stderr.String(), "bench: the servers did not last to the end: ")
		})
	}
}

// A late write is waited for beyond the working time, but not from servers that are gone.
func TestRunWithoutServersKeepsToItsTime(t *testing.T) {
	const length = 500 * time.Millisecond
	b, err := prepare(t.Context(), config{masters: 1, length: length, clients: 1, names: 1})
	require.NoError(t, err)
	defer b.close()
	b.masters.close()
	r := b.work(t.Context(), io.Discard)
	require.ErrorContains(t, r.verdict(), "did not last")
	require.Less(t, r.Seconds, (length + grace).Seconds())
}

func TestMinorityOfServersMayDie(t *testing.T) {
	t.Parallel()
	b, err := prepare(t.Context(), config{masters: 3, length: 2 * time.Second, clients: 2, names: 2})
	require.NoError(t, err)
	defer b.close()
	stderr := &atFirstLine{strike: b.masters.embedded[1].Close}
	require.Equal(t, statusOK, b.run(t.Context(), io.Discard, stderr), stderr.String())
}

var errFull = errors.New("no space left on device")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestResultThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   []string
		status int
	}{
		{[]string{"-masters", "1", "-for", "1s", "-clients", "2"}, statusViolated},
		{[]string{"-masters", "1", "-for", "1s", "-clients", "2", "-json"}, statusViolated},
		{[]string{"-h"}, statusNoRun},
	} {
		var stderr bytes.Buffer
		require.Equal(t, test.status, run(t.Context(), test.args, fullDisk{}, &stderr), "%q", test.args)
		require.Contains(t, stderr.String(), errFull.Error())
	}
}
