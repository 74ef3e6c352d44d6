package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// runJSON is a run with -json that must end well.
func runJSON(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), append([]string{"-json"}, args...), &stdout, &stderr)
	require.Equal(t, statusOK, status, stderr.String())
	var r result
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &r), "standard output is the result and nothing else")
	return r
}

func requireSound(t *testing.T, r result) {
	t.Helper()
	require.NotZero(t, r.Write.Acquired+r.Read.Acquired)
	require.Empty(t, r.Violations)
	require.NotZero(t, r.LateWrites)
	require.GreaterOrEqual(t, r.StaleRefused, r.LateWrites)
	require.GreaterOrEqual(t, r.Stalls, r.LateWrites)
	require.GreaterOrEqual(t, r.LeasesLost, r.Stalls)
	require.False(t, r.Interrupted)
}

func TestRunOnEmbeddedMasters(t *testing.T) {
	t.Parallel()
	for masters, arg := range map[int]string{1: "1", 3: "3"} {
		t.Run(arg, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "x.svg")
			r := runJSON(t, "-masters", arg, "-for", "1s", "-clients", "2", "-names", "2", "-svg", file)
			requireSound(t, r)
			require.True(t, r.Embedded)
			require.Len(t, r.Servers, masters)
			svg, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Contains(t, string(svg), "refused: token")
		})
	}
}

func TestRunUnfenced(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.svg")
	r := runJSON(t, "-masters", "1", "-for", "1s", "-clients", "2", "-names", "1", "-unfenced", "-svg", file)
	requireSound(t, r)
	require.GreaterOrEqual(t, r.LostUnfenced, r.LateWrites, "each late write replaces a newer one")
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, "newer writes lost: [1-9]", string(svg))
}

func TestRunOnRealServer(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	r := runJSON(t, "-addr", server.Addr(), "-for", "1s", "-clients", "4", "-names", "2")
	requireSound(t, r)
	require.False(t, r.Embedded)
}

func TestLateWriteOfACutOffHolder(t *testing.T) {
	b, err := prepare(t.Context(), config{masters: 1, length: time.Second, clients: 1, names: 1})
	require.NoError(t, err)
	defer b.close()
	s := &staller{stage: b.stage, holder: b.team[1], next: b.team[0]}
	require.NoError(t, s.round(t.Context(), b.stage.names[0], cutLink))
	require.EqualValues(t, 1, b.stage.score.lateWrites)
	require.EqualValues(t, 1, b.stage.score.refused)
	require.Zero(t, b.stage.score.violations)
	require.NotZero(t, b.team[1].locker.Stats().RenewFailed, "it was not renewal that was missing, but the link")
	lease, err := b.team[1].locker.Lock(t.Context(), b.stage.names[0])
	require.NoError(t, err, "the link is mended")
	require.NoError(t, lease.Release(t.Context()))
}

func TestViolationIsReported(t *testing.T) {
	b, err := prepare(t.Context(), config{masters: 1, length: 50 * time.Millisecond, clients: 1, names: 1})
	require.NoError(t, err)
	defer b.close()
	b.stage.score.violated(exclusion, "planted")
	var stdout, stderr bytes.Buffer
	require.Equal(t, statusViolated, b.run(t.Context(), &stdout, &stderr))
	require.Contains(t, stdout.String(), "exclusion: planted")
	require.Contains(t, stdout.String(), "-svg FILE")
	require.True(t, strings.HasSuffix(stderr.String(), "bench: 1 violations\n"), "after what it shows: %q", &stderr)
}

// Clients that lock under different prefixes do not exclude each other: a lock that is none.
func TestCheckerSeesThroughALockThatIsNone(t *testing.T) {
	b, err := prepare(t.Context(), config{masters: 1, length: time.Second, clients: 1, names: 1})
	require.NoError(t, err)
	defer b.close()
	other, err := rwlock.New(b.team[1].conns[0], rwlock.WithPrefix("elsewhere"))
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()

	name := b.stage.names[0]
	older, err := b.team[0].locker.Lock(t.Context(), name)
	require.NoError(t, err)
	newer, err := other.Lock(t.Context(), name)
	require.NoError(t, err)
	b.stage.occupy(1, older, 0, func() {
		b.stage.occupy(2, newer, 0, func() { b.stage.use(t.Context(), newer) })
		b.stage.use(t.Context(), older)
	})
	require.Equal(t, [breaches]uint64{exclusion: 1, storage: 1}, b.stage.score.violations)
	require.NoError(t, older.Release(t.Context()))
	require.NoError(t, newer.Release(t.Context()))
}

// interrupter presses Ctrl-C at the first line of progress.
type interrupter struct{ press context.CancelFunc }

func (i interrupter) Write(p []byte) (int, error) {
	i.press()
	return len(p), nil
}

func TestInterruptedRunEndsWithTheTable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	began := time.Now()
	status := run(ctx, []string{"-masters", "1", "-for", "10m", "-clients", "2"}, &stdout, interrupter{cancel})
	require.Equal(t, statusOK, status)
	require.Less(t, time.Since(began), time.Minute)
	require.Contains(t, stdout.String(), ", interrupted\n")
	require.Contains(t, stdout.String(), "stale writes refused")
}

func TestRunThatCannotBegin(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"                  // no server takes the lowest port
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	defer func() { require.NoError(t, hung.Close()) }()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"hung server": {[]string{"-addr", hung.Addr().String()}, "no reply in 1s"},
		"bad flag":    {[]string{"-clients", "0"}, "bench: -clients 0: must be 1 to 256 (-h shows the flags)\n"},
		"no server":   {[]string{"-addr", nobody}, "server " + nobody},
		"unwritable svg": {
			[]string{"-masters", "1", "-svg", filepath.Join(t.TempDir(), "no", "x.svg")},
			"bench: -svg: open ",
		},
		"svg is a folder": {
			[]string{"-masters", "1", "-svg", t.TempDir()}, "is a directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, statusNoRun, run(t.Context(), test.args, &stdout, &stderr))
			require.Contains(t, stderr.String(), test.says)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
			require.Empty(t, stdout.String())
		})
	}
}

func TestServersThatAreUnfit(t *testing.T) {
	locked := testredis.Start(t, "--requirepass", "secret")
	master, replica := testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	for name, test := range map[string]struct{ addr, says string }{
		"password": {locked.Addr(), "NOAUTH"},
		"replica":  {replica.Addr(), "READONLY"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, statusNoRun, run(t.Context(), []string{"-addr", test.addr}, &stdout, &stderr))
			require.Contains(t, stderr.String(), test.says)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"))
		})
	}
}

func TestLinkCutWhileDialling(t *testing.T) {
	l := newLink()
	server, client := net.Pipe()
	defer func() { require.NoError(t, server.Close()) }()
	conn, err := l.keep(client)
	require.NoError(t, err)
	var reading sync.WaitGroup
	reading.Go(func() {
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
	})
	l.sever()
	reading.Wait()
	_, err = l.dial(t.Context(), "127.0.0.1:1", &net.Dialer{}, nil)
	require.ErrorIs(t, err, errCut)
	late, other := net.Pipe()
	_, err = l.keep(late)
	require.ErrorIs(t, err, errCut)
	_, err = other.Read(make([]byte, 1))
	require.Error(t, err, "a connection that comes too late is closed")
	l.mend()
	require.False(t, l.isCut())
}

// Whatever keeps a stalled holder from its late write, such as the end of the run, the loss of its lease is explained.
func TestStallWithoutALateWriteIsCounted(t *testing.T) {
	b, err := prepare(t.Context(), config{masters: 1, length: time.Second, clients: 1, names: 1})
	require.NoError(t, err)
	defer b.close()
	s := &staller{stage: b.stage, holder: b.team[1], next: b.team[0]}
	require.NoError(t, s.next.locker.Close())
	require.ErrorIs(t, s.round(t.Context(), b.stage.names[0], pausedProcess), rwlock.ErrClosed)
	require.Zero(t, b.stage.score.lateWrites)
	require.EqualValues(t, 1, b.stage.score.stalls)
	require.EqualValues(t, 1, b.team[1].locker.Stats().Expired)
}

func TestMain(m *testing.M) {
	scratch.Use("fencelock-bench")
	testredis.Together()
	goleak.VerifyTestMain(m)
}

// progressOver returns what is shown in a number of seconds of fake time.
func progressOver(t *testing.T, d time.Duration, change func(*progress)) (shown string) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, 5*time.Second, nil, new(scoreboard))
		change(p)
		over, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			p.run(over)
		}()
		time.Sleep(d)
		close(over)
		<-ended
		shown = out.String()
	})
	return shown
}

func TestProgressInPlainLines(t *testing.T) {
	shown := progressOver(t, 3500*time.Millisecond, func(p *progress) { p.score.refusedStale() })
	lines := strings.Split(strings.TrimSpace(shown), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "1.0s of 5s  waiting 0  acquired 0  lost 0  refused 1", lines[0])
	require.NotContains(t, shown, "\x1b")
}

func TestProgressOnATerminal(t *testing.T) {
	shown := progressOver(t, 1050*time.Millisecond, func(p *progress) {
		p.terminal = true
		p.score.violated(exclusion, "planted")
	})
	require.NotContains(t, shown, "\n")
	require.Equal(t, 11, strings.Count(shown, "\r\x1b[K"), "ten times, and cleared at the end")
	require.True(t, strings.HasSuffix(shown, "\r\x1b[K"))
	require.Contains(t, shown, "VIOLATIONS 1")
}

func TestProgressFitsANarrowTerminal(t *testing.T) {
	p := newProgress(nil, 100*time.Hour, nil, new(scoreboard))
	busy := rwlock.Stats{Held: 999, Waiting: 999, Acquired: 123456789, Lost: rwlock.LostStats{Paused: 1234567}}
	require.Less(t, len(p.line(99*time.Hour, busy)), columns, "the last column is left free")
	p.score.violated(exclusion, "planted")
	line := p.line(99*time.Hour, busy)
	require.Less(t, len(line), columns)
	require.Contains(t, line, "VIOLATIONS 1", "what matters most is not cut off")
}
