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
	b := expect.NoError(prepare(t.Context(), config{masters: 1, length: length, clients: 1, names: 1})).In(t)
	t.Cleanup(b.close)
	return b
}

// The output ends with what the run has shown, and speaks of no loss before it.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"one master":    {"-masters", "1"},
		"three masters": {"-masters", "3"},
		"redis-server":  {"-addr", testredis.Start(t).Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			args := append(args, "-for", "1s", "-clients", "2", "-names", "1")
			require.Equal(t, statusOK, run(t.Context(), args, &stdout, &stderr), "%s%s", &stdout, &stderr)
			require.Regexp(t, `\nviolations +0  exclusion 0, order 0, storage 0\n`, &stdout)
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

// A holder without a cable renews in vain. Its late write is refused, and it goes on with a cable.
func TestLateWriteOfACutOffHolder(t *testing.T) {
	b := prepared(t, time.Second)
	s := &staller{bench: b, holder: b.team[1], next: b.team[0]}
	require.NoError(t, s.round(t.Context(), b.names[0], true))
	require.EqualValues(t, 1, b.lateWrites)
	require.EqualValues(t, 1, b.refused)
	require.Zero(t, b.broken())
	require.NotZero(t, s.holder.locker.Stats().RenewFailed, "it was not renewal that was missing")
	require.NoError(t, s.holder.probe(t.Context(), startLimit))
}

// Whatever keeps a stalled holder from its late write, such as the end of the run, the loss of its lease is explained.
func TestStallWithoutALateWriteIsCounted(t *testing.T) {
	b := prepared(t, time.Second)
	s := &staller{bench: b, holder: b.team[1], next: b.team[0]}
	require.NoError(t, s.next.locker.Close())
	require.ErrorIs(t, s.round(t.Context(), b.names[0], false), rwlock.ErrClosed)
	require.Zero(t, b.lateWrites)
	require.EqualValues(t, 1, b.stalls)
}

func TestViolationIsReported(t *testing.T) {
	b := prepared(t, 50*time.Millisecond)
	b.violated(judge.Exclusion, "planted")
	var stdout, stderr bytes.Buffer
	require.Equal(t, statusViolated, b.run(t.Context(), &stdout, &stderr))
	require.Contains(t, stdout.String(), "\nexclusion: planted\n")
	require.NotContains(t, stdout.String(), "the guarded one none")
	require.True(t, strings.HasSuffix(stderr.String(), "bench: 1 violations\n"), "after what it shows: %q", &stderr)
}

// Clients that lock under different prefixes do not exclude each other: a lock that is none.
func TestALockThatIsNoneIsNoticed(t *testing.T) {
	b := prepared(t, time.Second)
	other := expect.NoError(rwlock.New(b.team[1].conns[0], rwlock.WithPrefix("elsewhere"))).In(t)
	defer func() { require.NoError(t, other.Close()) }()
	name := b.names[0]
	older := expect.NoError(b.team[0].locker.Lock(t.Context(), name)).In(t)
	at := b.judge.Begin(name)
	newer := expect.NoError(other.Lock(t.Context(), name)).In(t)
	b.occupy(at, older, func() {
		b.occupy(at, newer, func() { b.use(t.Context(), newer) })
		b.use(t.Context(), older)
	})
	require.Equal(t, map[judge.Rule]uint64{judge.Exclusion: 1, storage: 1}, b.violations)
	require.NoError(t, older.Release(t.Context()))
	require.NoError(t, newer.Release(t.Context()))
}

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

func TestInterruptedRunEndsWithTheTable(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	b := expect.NoError(prepare(t.Context(), config{masters: 3, length: 2 * time.Second, clients: 2, names: 2})).In(t)
	defer b.close()
	stderr := &atFirstLine{strike: b.embedded[1].Close}
	require.Equal(t, statusOK, b.run(t.Context(), io.Discard, stderr), stderr.String())
}

var errFull = errors.New("no space left on device")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestResultThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for arg, status := range map[string]int{"-for=1s": statusViolated, "-h": statusNoRun} {
		var stderr bytes.Buffer
		require.Equal(t, status, run(t.Context(), []string{"-masters=1", "-clients=2", arg}, fullDisk{}, &stderr))
		require.Contains(t, stderr.String(), errFull.Error())
	}
}

func TestRunThatCannotBegin(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"                  // no server takes the lowest port
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	defer func() { require.NoError(t, hung.Close()) }()
	locked := testredis.Start(t, "--requirepass", "secret")
	master, replica := testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	for _, test := range []struct {
		says string
		args []string
	}{
		{"no reply in 1s", []string{"-addr", hung.Addr().String()}},
		{"server " + nobody, []string{"-addr", nobody}},
		{"NOAUTH", []string{"-addr", locked.Addr()}},
		{"READONLY", []string{"-addr", replica.Addr()}},
		{"-for 0s: must be positive", []string{"-for", "0"}},
		{"0 clients: must be 1 to 256", []string{"-clients", "0"}},
		{"257 clients", []string{"-clients", "257"}},
		{"1001 names: must be 1 to 1000", []string{"-names", "1001"}},
		{"0 masters: must be 1 to 15", []string{"-masters", "0"}},
		{"2 masters: must be 1, or odd for a quorum", []string{"-masters", "2"}},
		{"2 masters: must be 1, or odd for a quorum", []string{"-addr", "a:1,b:1"}},
		{`-addr: "localhost" is not host:port`, []string{"-addr", "localhost"}},
		{`-addr: ":6379" is not host:port`, []string{"-addr", ":6379"}},
		{"-loud", []string{"-loud"}},
		{`"now" is not a flag`, []string{"now"}},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, statusNoRun, run(t.Context(), test.args, &stdout, &stderr), "%q", test.args)
		require.Contains(t, stderr.String(), test.says)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
		require.Empty(t, stdout.String())
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	require.Equal(t, statusOK, run(t.Context(), []string{"-h"}, &help, io.Discard))
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
		{func(r *result) { clear(r.taken) }, "no lock was acquired"},
		{func(r *result) { r.lateWrites = 0 }, "no stalled holder"},
		{func(r *result) { r.lateWrites = 0; r.interrupted = true }, ""},
		{func(r *result) { r.gone = errFull; r.lateWrites = 0 }, "did not last to the end: " + errFull.Error()},
		{func(r *result) { r.gone = errFull; r.interrupted = true }, ""},
	} {
		r := newResult("a run")
		r.took("read")
		r.lateWrites = 1
		if test.change(r); test.says == "" {
			require.NoError(t, r.verdict())
		} else {
			require.ErrorContains(t, r.verdict(), test.says)
		}
	}
}

func TestTable(t *testing.T) {
	r := newResult("a run")
	r.taken["write"], r.lasted, r.stalls, r.lost = 100, 2*time.Second, 1, 3
	for _, line := range []string{
		"In 2.0 s",
		"writes                  100  sections that had the lock for writing",
		"nested                    0  sections inside these, which join their lock",
		"leases ended              2  of other holders: is the machine busy?",
	} {
		require.Contains(t, strings.Split(r.String(), "\n"), line)
	}
}

func TestStoreRefusesWhatIsLate(t *testing.T) {
	s := newStore([]string{"a"})
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

func TestBeatsCoverAllNames(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	for workers := 1; workers <= 12; workers++ {
		seen := map[string]bool{}
		for w := range workers {
			for _, name := range beat(names, w, workers) {
				seen[name] = true
			}
		}
		require.Len(t, seen, len(names), "%d workers", workers)
	}
}
