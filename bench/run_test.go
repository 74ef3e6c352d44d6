package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-bench")
	testredis.Together()
	goleak.VerifyTestMain(m)
}

// prepared is a run of one client on one embedded master.
func prepared(t *testing.T, length time.Duration) *bench {
	t.Helper()
	b := &bench{cfg: config{masters: 1, length: length, clients: 1, names: 1}}
	t.Cleanup(b.close)
	require.NoError(t, b.prepare(t.Context(), io.Discard))
	return b
}

// The output ends with what the run has shown, and speaks of no loss before it.
//
// This test and the others whose clients work at full speed run one after the other: side by side, and under the race
// detector, they would keep the servers of each other from answering in time.
func TestRun(t *testing.T) {
	for name, args := range map[string][]string{
		"one master":    {"-masters", "1"},
		"three masters": {"-masters", "3"},
		"redis-server":  {"-addr", testredis.Start(t).Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr console
			args := append(args, "-for", "1s", "-clients", "2", "-names", "1")
			require.Equal(t, statusOK, run(t.Context(), args, &stdout, &stderr), "%s%s", &stdout, &stderr)
			require.Regexp(t, `\nviolations +0  of exclusion, order and storage\n`, &stdout)
			require.Regexp(t, `^A demonstration of faults, no measurement: 2 clients of 2 workers share 1 lock on `, &stdout)
			require.NotRegexp(t, `per s|p50|p99|/s`, &stdout)
			end := strings.LastIndex(stdout.String(), "\n\n") + 2
			sentence := stdout.String()[end:]
			require.NotContains(t, stdout.String()[:end]+stderr.String(), "lost")
			require.Regexp(t, `^[1-9]\d* holders? stalled past the lease and wrote late: the copy that checks no token lost `+
				`[1-9]\d* updates?, the guarded one none.\n$`, sentence)
		})
	}
}

// Whatever keeps a stalled holder from its late write, such as the end of the run, the loss of its lease is explained.
func TestStallWithoutALateWriteIsCounted(t *testing.T) {
	b := prepared(t, time.Second)
	s := &staller{bench: b, holder: b.team[1], next: b.team[0]}
	require.NoError(t, s.next.Close())
	require.ErrorIs(t, s.round(t.Context(), b.names[0]), rwlock.ErrClosed)
	require.Zero(t, b.n[late].Load())
	require.EqualValues(t, 1, b.n[stalls].Load())
}

func TestViolationIsReported(t *testing.T) {
	b := prepared(t, 50*time.Millisecond)
	b.violated(judge.Exclusion, "planted")
	var stdout bytes.Buffer
	require.EqualError(t, b.run(t.Context(), &stdout, io.Discard), "1 violations")
	require.Contains(t, stdout.String(), "\nexclusion: planted\n")
	require.NotContains(t, stdout.String(), "the guarded one none")
}

// Clients that lock under different prefixes do not exclude each other: a lock that is none.
func TestALockThatIsNoneIsNoticed(t *testing.T) {
	b := prepared(t, time.Second)
	other := expect.NoError(rwlock.Open(b.embedded[0].Addr(), rwlock.WithPrefix("elsewhere"))).In(t)
	defer func() { require.NoError(t, other.Close()) }()
	name := b.names[0]
	older := expect.NoError(b.team[0].Lock(t.Context(), name)).In(t)
	at := b.judge.Begin(name)
	newer := expect.NoError(other.Lock(t.Context(), name)).In(t)
	b.occupy(at, older, func() {
		b.occupy(at, newer, func() { b.use(t.Context(), newer) })
		b.use(t.Context(), older)
	})
	require.Len(t, b.violations, 2)
	require.Equal(t, judge.Exclusion, b.violations[0].Rule)
	require.Equal(t, storage, b.violations[1].Rule)
	require.NoError(t, older.Release(t.Context()))
	require.NoError(t, newer.Release(t.Context()))
}

// console is written by a run and by its logger.
type console struct {
	mu sync.Mutex
	bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Buffer.Write(p)
}

// atFirstLine calls strike when the first line of progress is written: in the middle of the work.
type atFirstLine struct {
	console
	once   sync.Once
	strike func()
}

func (w *atFirstLine) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(" writes, ")) { // a line of the log may come before
		w.once.Do(w.strike)
	}
	return w.console.Write(p)
}

func TestInterruptedRunEndsWithTheTable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	args := []string{"-masters", "1", "-for", "10m", "-clients", "2"}
	require.Equal(t, statusOK, run(ctx, args, &stdout, &atFirstLine{strike: cancel}))
	require.Contains(t, stdout.String(), ", interrupted\n")
	require.Contains(t, stdout.String(), "late writes")
}

func TestServersDieMidway(t *testing.T) {
	testredis.NeedAll(t, "it waits for servers that are gone, as long as for busy ones")
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

func TestMinorityOfServersMayDie(t *testing.T) {
	b := &bench{cfg: config{masters: 3, length: 2 * time.Second, clients: 2, names: 2}}
	defer b.close()
	require.NoError(t, b.prepare(t.Context(), io.Discard))
	require.NoError(t, b.run(t.Context(), io.Discard, &atFirstLine{strike: b.embedded[1].Close}))
}

var errFull = errors.New("no space left on device")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestResultThatCannotBeWritten(t *testing.T) {
	var stderr console
	status := run(t.Context(), []string{"-masters=1", "-clients=2", "-for=1s"}, fullDisk{}, &stderr)
	require.Equal(t, statusViolated, status)
	require.Contains(t, stderr.String(), errFull.Error())
}

func TestRunThatCannotBegin(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"                  // no server takes the lowest port
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hung.Close()) })
	locked := testredis.Start(t, "--requirepass", "secret")
	master, replica := testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	for _, test := range []struct {
		says string
		args []string
	}{
		{"dial timed out", []string{"-addr", hung.Addr().String()}},
		{nobody + ": connect: connection refused: no server listens there", []string{"-addr", nobody}},
		{"NOAUTH", []string{"-addr", locked.Addr()}},
		{"replica", []string{"-addr", replica.Addr()}},
		{"-for 0s: must be positive", []string{"-for", "0"}},
		{"1 to 256 -clients", []string{"-clients", "0"}},
		{"1 to 1000 -names", []string{"-names", "1001"}},
		{"1 to 15 -masters", []string{"-masters", "0"}},
		{"must be an odd number", []string{"-masters", "2"}},
		{"must be an odd number", []string{"-addr", "a:1,b:1"}},
		{"-loud", []string{"-loud"}},
		{`"now" is not a flag`, []string{"now"}},
	} {
		t.Run(test.says, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr console
			require.Equal(t, statusNoRun, run(t.Context(), test.args, &stdout, &stderr), "%q", test.args)
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			require.Contains(t, lines[len(lines)-1], test.says)
			require.Empty(t, stdout.String())
		})
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	require.Equal(t, statusOK, run(t.Context(), []string{"-h"}, io.Discard, &help))
	for _, name := range []string{"-addr host:port", "-masters", "-for", "-clients", "-names"} {
		require.Contains(t, help.String(), name)
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		change func(*result)
		says   string // "" for nothing to complain of
	}{
		{func(*result) {}, ""},
		{func(r *result) { r.violated(storage, "planted"); r.interrupted = true }, "1 violations"},
		{func(r *result) { r.n[late].Store(0) }, "no stalled holder"},
		{func(r *result) { r.n[late].Store(0); r.interrupted = true }, ""},
		{func(r *result) { r.gone = errFull; r.n[late].Store(0) }, "did not last to the end: " + errFull.Error()},
		{func(r *result) { r.gone = errFull; r.interrupted = true }, ""},
	} {
		var r result
		r.n[reads].Store(1)
		r.n[late].Store(1)
		if test.change(&r); test.says == "" {
			require.NoError(t, r.verdict())
		} else {
			require.ErrorContains(t, r.verdict(), test.says)
		}
	}
}

func TestTable(t *testing.T) {
	var r result
	r.lasted = 2 * time.Second
	r.n[writes].Store(100)
	for _, line := range []string{
		"In 2.0 s",
		"writes                  100  sections that had the lock for writing",
		"nested                    0  sections inside these, which join their lock",
		"violations                0  of exclusion, order and storage",
	} {
		require.Contains(t, strings.Split(r.table(0), "\n"), line)
	}
}

func TestStoreRefusesWhatIsLate(t *testing.T) {
	s := &store{counts: map[string][2]counter{}}
	fence := func(token fencing.Token) fencing.Fence {
		return fencing.Fence{Resource: "a", Token: token, Mode: rwlock.Write}
	}
	first := expect.NoError(s.load(t.Context(), fence(1))).In(t)
	require.NoError(t, s.increment(t.Context(), fence(1), first))
	second := expect.NoError(s.load(t.Context(), fence(2))).In(t)
	require.Equal(t, reading{1, 1}, second)
	require.NoError(t, s.increment(t.Context(), fence(2), second))
	require.ErrorIs(t, s.increment(t.Context(), fence(1), first), fencing.ErrStale, "loading was the newer one's claim")
	unfenced, fenced := s.lost()
	require.Empty(t, fenced)
	require.EqualValues(t, 2, unfenced, "3 writes of one each, and 1 is left")

	require.NoError(t, s.increment(t.Context(), fence(3), first), "it adds one to what it has read long before")
	_, fenced = s.lost()
	require.Equal(t, []string{`"a": 1 after 3 accepted writes of one each`}, fenced)
}
