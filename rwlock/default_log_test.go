package rwlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	started "github.com/seed74116694/fencelock/internal/test/process"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// newcomersAddr names the environment variable with which TestNewcomersProgram runs in a process of its own: the
// default logger belongs to the process.
const newcomersAddr = "FENCELOCK_NEWCOMERS_ADDR"

// TestNewcomersProgram is a first program: it names no logger, and asks for a lock until its input ends.
func TestNewcomersProgram(t *testing.T) {
	addr := os.Getenv(newcomersAddr)
	if addr == "" {
		t.Skip("it is the child of TestAWrongConfigurationIsSaid")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	locker := expect.NoError(rwlock.Open(addr)).In(t)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil))) // the lines go there, although the locker was first
	err := locker.Do(ctx, "account:42", func(context.Context) error { return nil })
	_, _ = os.Stderr.WriteString("end: " + err.Error() + "\n")
	require.NoError(t, locker.Close())
}

// A program that names no logger is told why its first lock waits: by one line of the default logger, or at once by
// the error of the call.
func TestAWrongConfigurationIsSaid(t *testing.T) {
	testredis.Require(t)
	plain := testredis.Start(t)
	full := testredis.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	locked := testredis.Start(t, "--user", "newcomer", "on", ">right", "~*", "&*", "+@all")
	secret := testredis.Start(t, "--requirepass", "right")
	encrypted := testredis.StartTLS(t, testredis.Binaries()[0])
	nobody := expect.NoError(net.Listen("tcp", "127.0.0.1:0")).In(t)
	nobodysAddr := nobody.Addr().String()
	require.NoError(t, nobody.Close())
	nowhere := net.JoinHostPort("no-such-host.invalid", "6379")
	for name, c := range map[string]struct{ addr, line, advice, end string }{
		"wrong port": {
			addr: nobodysAddr, line: "does not answer its waiters", advice: "is it running",
			end: "connection refused",
		},
		"wrong host": {
			addr: nowhere, line: "does not answer its waiters", advice: "is the address right", end: "no such host",
		},
		"wrong password": {
			addr: "redis://newcomer:wrong@" + locked.Addr(), advice: "this user and password, as in redis://", end: "WRONGPASS",
		},
		"no password": {
			addr: "redis://" + secret.Addr(), end: "NOAUTH",
			advice: "redis://:password@host:port where there is only a password",
		},
		"full server": {
			addr: full.Addr(), line: "refuses its waiters", advice: "raise maxmemory", end: "OOM command not allowed",
		},
		"wrong certificate": {
			addr: "rediss://" + encrypted.TLSAddr(), line: "does not answer its waiters", advice: "the certificate",
			end: "x509: certificate signed by unknown authority",
		},
		"TLS against plain": {
			addr: "rediss://" + plain.Addr(), line: "does not answer its waiters", advice: "TLS", end: "no usable answer",
		},
		"plain against TLS": {
			addr: encrypted.TLSAddr(), line: "does not answer its waiters", advice: "TLS", end: encrypted.TLSAddr(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told, end := newcomer(t, c.addr, c.line != "")
			require.Contains(t, end, c.end)
			require.Equal(t, 1, strings.Count(end, "; advice: "), end)
			_, advice, _ := strings.Cut(end, "; advice: ")
			require.Contains(t, advice, c.advice, "the error says what the log does")
			if c.line == "" {
				require.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			require.Contains(t, told[0], c.line)
			require.Contains(t, told[0], "advice=")
			require.Contains(t, told[0], c.advice)
		})
	}
}

// newcomer runs the program. It returns the lines of the logger, and how the call ended. If waits is set, the call ends
// once there was a line.
func newcomer(t *testing.T, addr string, waits bool) (told []string, end string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestNewcomersProgram$")
	child.Env = append(os.Environ(), newcomersAddr+"="+addr)
	input := expect.NoError(child.StdinPipe()).In(t)
	output, writer := io.Pipe()
	child.Stderr = writer
	p := expect.NoError(started.Start(child)).In(t)
	t.Cleanup(p.Kill)
	go func() {
		<-p.Ended
		_ = writer.Close()
	}()
	stop := sync.OnceFunc(func() { _ = input.Close() })
	for lines := bufio.NewScanner(output); lines.Scan(); {
		text, ended := strings.CutPrefix(lines.Text(), "end: ")
		if ended {
			end = text
		} else if strings.Contains(text, " level=WARN ") {
			told = append(told, text)
		}
		if ended || waits {
			stop()
		}
	}
	return told, end
}

// The first line comes within two seconds of a lock that cannot be asked for, and then one a server and minute, however
// many wait, hold and release.
func TestOneLineAServerAndMinute(t *testing.T) {
	for name, fail := range map[string]func(p *process){
		"refused":   func(p *process) { p.CutOff(0) },
		"silent":    func(p *process) { p.W.Mini.Freeze() },
		"no memory": func(p *process) { p.W.Mini.Miniredis().SetError("OOM command not allowed") },
	} {
		subtestInFakeTime(t, name, func(w *world) {
			var log testkit.Log
			p := w.Process(log.Option())
			p.WarmUp()
			held := p.Take("held", rwlock.Write, rwlock.WithTTL(time.Hour))
			fail(p)
			for i := range 20 {
				p.Acquire(w.Ctx, fmt.Sprint("lock ", i), rwlock.Write)
			}
			w.Pass(2 * time.Second)
			require.Len(w, log.Records(""), 1)
			require.Error(w, held.Release(w.Ctx))
			w.Pass(57 * time.Second)
			require.Len(w, log.Records(""), 1, log.String())
			for minute := 2; minute < 6; minute++ {
				w.Pass(time.Minute)
				require.Len(w, log.Records(""), minute, log.String())
			}
		})
	}
}

// A server has one line for its leases and its waiters, so each says what to do.
func TestALineAboutRenewalsHasAdvice(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var book testkit.Log
		held := w.Process(book.Option()).Take("n", rwlock.Write)
		w.Mini.Miniredis().SetError("OOM command not allowed when used memory > 'maxmemory'.")
		w.Pass(w.TTL / 2)
		lines := book.Records("server does not renew leases")
		require.Len(w, lines, 1)
		var advice string
		lines[0].Attrs(func(a slog.Attr) bool {
			advice = a.Value.String()
			return a.Key != "advice"
		})
		require.Contains(w, advice, "raise maxmemory")
		w.Mini.Miniredis().SetError("")
		w.Release(held)
	})
}
