package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// asCommand is the variable of the environment that makes a program of these tests the command.
const asCommand = "FENCELOCK_TEST_AS_COMMAND"

// started is a fencelock in a process of its own.
type started struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   output // of the command under the lock too
	errs  output
	ended chan struct{}
}

// asProcess returns the command with these words in a process that is not started yet. Its end is seen once no process
// has its output any more: also those that its command has started have ended then.
func asProcess(t *testing.T, at string, words ...string) *started {
	p := &started{t: t, ended: make(chan struct{})}
	p.cmd = exec.Command(expect.NoError(os.Executable()).In(t), words...)
	p.cmd.Env = append(os.Environ(), asCommand+"=1", "FENCELOCK_URL="+at, "FENCELOCK="+p.cmd.Path)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	return p
}

func startLock(t *testing.T, at string, words ...string) *started {
	t.Helper()
	p := asProcess(t, at, append([]string{"lock", patience}, words...)...)
	p.start()
	return p
}

func (p *started) start() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // its command ends with it
		<-p.ended
	})
}

// status waits for the end and returns the exit status.
func (p *started) status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(testkit.Patience):
		require.FailNow(p.t, "the command does not end", "%s%s", &p.out, &p.errs)
	}
	return p.cmd.ProcessState.ExitCode()
}

// says waits for a text on standard output.
func (p *started) says(text string) {
	p.t.Helper()
	so := func() bool { return strings.Contains(p.out.String(), text) }
	require.Eventually(p.t, so, testkit.Patience, time.Millisecond, "%s", &p.errs)
}

func (p *started) signal(sig os.Signal) { require.NoError(p.t, p.cmd.Process.Signal(sig)) }

func urlOf(server *testredis.Server) string { return "redis://" + server.Addr() }

// shell is a command that says that it runs.
func shell(script string) []string { return []string{"--", "sh", "-c", "echo runs; " + script} }

// until is a shell's loop that ends with the test: it is never left to run on.
const until = "while sleep 0.02; do :; done"

func TestLockStatus(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	held := hold(t, application(t, server.Option()), "held", rwlock.WithMeta("web-1"))
	for words, want := range map[string]struct {
		status int
		errs   string
	}{
		"free -- true":                  {},
		"a b c -- sh -c 'exit 7'":       {status: 7},
		"free -- sh -c 'kill -TERM $$'": {status: 128 + 15},
		"free -- ./no-such-command":     {127, "no such file"},
		"free -- no-such-command":       {127, "not found"},
		"free -- /":                     {126, "is a directory"},
		"-try held -- true": {
			statusHeld, `lock held is held for write by web-1 since \S+, hold ` + held.Owner(),
		},
		"-wait 5s held -- true":                   {statusHeld, "web-1"},
		"-wait 5s -quiet held -- true":            {statusHeld, "^$"},
		"-try other held -- true":                 {statusHeld, "web-1"},
		"-shared -try held -- true":               {statusHeld, "web-1"},
		"-ok-if-held -try held -- true":           {0, "^$"},
		"-addr 127.0.0.1:1 free -- true":          {statusNoAnswer, "connection refused"},
		"-addr 127.0.0.1:1 -quiet free -- true":   {statusNoAnswer, "^$"},
		"free --":                                 {statusWrong, "no command follows --"},
		"nightly /bin/echo hi":                    {statusWrong, "does -- miss before the command"},
		"-- true":                                 {statusWrong, "takes the name of a lock"},
		"-no-such-flag free -- true":              {statusWrong, "flag provided but not defined"},
		"-wait -1s free -- true":                  {statusWrong, "must not be negative"},
		"-wait 1s -try free -- true":              {statusWrong, "not be given with -try"},
		"-wait 2s -min-hold 2s free -- true":      {statusWrong, "must be shorter than -min-hold 2s"},
		"-min-hold 2s free -- true":               {statusWrong, "needs -try or a shorter -wait"},
		"-ttl 1ms free -- true":                   {statusWrong, "must be 100ms to 24h"},
		"-max-hold -1s free -- true":              {statusWrong, "WithMaxHold"},
		"free free -- true":                       {statusWrong, "free"},
		"-max-hold 400ms -ttl 1s free -- sleep 9": {statusLost, "lock free is not renewed|max hold"},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			args := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(words, -1)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			p := startLock(t, urlOf(server), args...)
			require.Equal(t, want.status, p.status(), "%s", &p.errs)
			require.Regexp(t, want.errs, p.errs.String())
		})
	}
}

// An attempt over a quorum awaits the answers of slow servers for as long as -timeout says.
func TestLockAwaitsSlowAnswers(t *testing.T) {
	t.Parallel()
	servers, addrs := startThree(t)
	var proxies []*testredis.Proxy
	for i, server := range servers {
		proxies = append(proxies, testredis.NewProxy(t, server.Addr()))
		addrs[i] = proxies[i].Addr()
	}
	hold(t, applicationOver(t, addrs), "held")
	for name, status := range map[string]int{"free": statusOK, "held": statusHeld} {
		asks := func(cmd []string) bool { return strings.HasPrefix(cmd[0], "EVAL") && cmd[3] == "fencelock:{"+name+"}" }
		for _, proxy := range proxies {
			proxy.DelayNextReply(asks, 1500*time.Millisecond)
		}
		p := startLock(t, "redis://"+strings.Join(addrs, ","), "-quarantine", "1h", "-try", name, "--", "true")
		require.Equal(t, status, p.status(), "%s", &p.errs)
	}
}

// The command has the lock in its environment, and a fencelock inside it joins that lock.
func TestLockNested(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	other := testredis.StartBinary(t, binary(t))
	inner := `"$FENCELOCK" lock ` + patience
	for _, c := range []struct {
		words, script string
		status        int
		says          string
	}{
		{
			"a", `echo "$FENCELOCK_NAME" && ` + inner + ` a -- sh -c '[ "$FENCELOCK_TOKEN" -gt 0 ] && echo "$FENCELOCK_NAME"'`,
			0, "(?s)^runs\na\na\n$",
		},
		{"a", inner + ` -try a -- ` + inner + ` -try -shared a -- echo inside`, 0, "inside"},
		{
			"a b", inner + ` -try c b -- sh -c 'echo $FENCELOCK_NAME $FENCELOCK_NAME_1 $FENCELOCK_NAME_2 $FENCELOCK_NAME_3'`,
			0, "b b c a",
		},
		{"a b", inner + ` c -- ` + inner + ` -try a -- echo inside`, 0, "inside"},
		{"-shared a", inner + ` -shared a -- echo inside`, 0, "inside"},
		{"-shared a", inner + ` a -- echo inside`, statusNotJoined, "^runs\n$"},
		{"a", inner + ` -addr ` + other.Addr() + ` a -- echo inside`, statusNotJoined, "^runs\n$"},
		{"a", inner + ` -keys other a -- echo inside`, statusNotJoined, "^runs\n$"},
		{"a", `FENCELOCK_TOKEN=7 ` + inner + ` a -- echo inside`, statusNotJoined, "^runs\n$"},
		{"a", `FENCELOCK_TOKEN=x ` + inner + ` a -- echo inside`, statusWrong, "^runs\n$"},
		{"a", `FENCELOCK_OWNER=x ` + inner + ` a -- echo inside`, statusWrong, "^runs\n$"},
		{"a", `FENCELOCK_NAMES=kept ` + inner + ` b -- sh -c 'echo $FENCELOCK_NAMES'`, 0, "kept"},
		{"a", `unset FENCELOCK_NAME; ` + inner + ` -try a -- echo inside`, statusHeld, "^runs\n$"},
	} {
		t.Run(c.words+" "+c.script, func(t *testing.T) {
			p := startLock(t, urlOf(server), append(strings.Fields(c.words), shell(c.script)...)...)
			require.Equal(t, c.status, p.status(), "%s", &p.errs)
			require.Regexp(t, c.says, p.out.String())
		})
	}
}

// A server that stands still renews nothing: SIGTERM comes first, and SIGKILL to a group that goes on. All of it has
// ended before the server can let another holder in: it is let go on after that.
func TestLockEndsItsCommandBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"ends at SIGTERM":      `trap 'echo told; exit 0' TERM; sleep 1000 & wait`,
		"ignores SIGTERM":      `trap '' TERM; ` + until,
		"a grandchild goes on": `trap 'exit 0' TERM; sh -c "trap '' TERM; ` + until + `" & ` + until,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.StartBinary(t, binary(t))
			p := startLock(t, urlOf(server), append([]string{"-ttl", "6s", "orders"}, shell(script)...)...)
			p.says("runs")
			server.Freeze()
			require.Equal(t, statusLost, p.status())
			require.Equal(t, strings.Contains(script, "told"), strings.Contains(p.out.String(), "told"))
			require.Contains(t, p.errs.String(), "lock orders is not renewed")
			server.Thaw()
			require.Equal(t, statusOK, startLock(t, urlOf(server), "orders", "--", "true").status())
		})
	}
}

// A loss that is known only afterwards ends the command at once.
func TestLockEndsItsCommandAfterALoss(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(*testing.T, *testredis.Server, *started)
		says string
	}{
		"fencelock stood still": {func(t *testing.T, server *testredis.Server, p *started) {
			p.signal(syscall.SIGSTOP)
			next := startLock(t, urlOf(server), "orders", "--", "true")
			require.Equal(t, statusOK, next.status())
			p.signal(syscall.SIGCONT)
		}, "paused|gone"},
		"the server lost its data": {func(t *testing.T, server *testredis.Server, _ *started) {
			commandOn(t, server, "FLUSHALL")
		}, "gone"},
		"the server restarted empty": {func(_ *testing.T, server *testredis.Server, _ *started) {
			server.Kill()
			server.Restart()
		}, "gone|not renewed"},
		"an operator broke it": {func(t *testing.T, server *testredis.Server, _ *started) {
			l := application(t, server.Option())
			id := expect.NoError(l.Inspect(t.Context(), "orders")).In(t).Holders[0].Hold
			require.NoError(t, l.Break(t.Context(), "orders", id, "wrong version"))
		}, "broken.*wrong version"},
		"an operator broke it now": {func(t *testing.T, server *testredis.Server, _ *started) {
			l := application(t, server.Option())
			id := expect.NoError(l.Inspect(t.Context(), "orders")).In(t).Holders[0].Hold
			require.NoError(t, l.Break(t.Context(), "orders", id, "now", rwlock.BreakNow()))
		}, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.StartBinary(t, binary(t))
			p := startLock(t, urlOf(server), append([]string{"-ttl", "6s", "orders"}, shell("trap '' TERM; "+until)...)...)
			p.says("runs")
			c.lose(t, server, p)
			require.Equal(t, statusLost, p.status())
			require.Regexp(t, c.says, p.errs.String())
		})
	}
}

// A break that waits has the command told at once, and waits until it has ended: here long before the end of the TTL.
func TestLockIsBroken(t *testing.T) {
	t.Parallel()
	for name, words := range map[string][]string{
		"command":   shell(`trap 'echo told; sleep 0.3; echo has ended; exit 0' TERM; ` + until),
		"coprocess": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.StartBinary(t, binary(t))
			l := application(t, server.Option())
			first := hold(t, l, "orders")
			p := asProcess(t, urlOf(server), append([]string{"lock", patience, "-ttl", "1h", "orders"}, words...)...)
			in := expect.NoError(p.cmd.StdinPipe()).In(t)
			p.start()
			untilSeen(t, l, "orders", func(s rwlock.State) bool { return len(s.Waiters) == 1 })
			require.NoError(t, first.Release(t.Context())) // it has waited, so it is told by a message
			untilSeen(t, l, "orders", func(s rwlock.State) bool {
				return len(s.Holders) == 1 && s.Holders[0].Remaining > 30*time.Minute
			})
			id := expect.NoError(l.Inspect(t.Context(), "orders")).In(t).Holders[0].Hold
			if words == nil {
				go func() { // the program ends its work, and with it the lock
					defer func() { _ = in.Close() }()
					p.says(`"event":"at risk","name":"orders"`)
					p.says(`was broken by`)
				}()
			} else {
				p.says("runs")
			}
			require.NoError(t, l.Break(t.Context(), "orders", id, "wrong version"))
			if words == nil {
				require.Contains(t, p.out.String(), "at risk")
			} else {
				require.Contains(t, p.out.String(), "has ended")
			}
			require.Equal(t, statusLost, p.status())
			require.Regexp(t, "wrong version", p.errs.String()+p.out.String())
		})
	}
}

// A server that accepts connections and does not answer keeps nobody from ending it.
func TestLockEndsWhileItConnects(t *testing.T) {
	t.Parallel()
	listener := expect.NoError(net.Listen("tcp", "127.0.0.1:0")).In(t)
	defer func() { _ = listener.Close() }()
	p := startLock(t, "redis://"+listener.Addr().String(), "orders", "--", "true")
	conn := expect.NoError(listener.Accept()).In(t)
	defer func() { _ = conn.Close() }()
	p.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, p.status(), "%s", &p.errs)
}

// A failover that loses nothing is survived: the lock is renewed on the new master.
func TestLockOverAFailover(t *testing.T) {
	t.Parallel()
	sentinel := testredis.StartSentinel(t, binary(t))
	option := sentinel.Option()
	l := application(t, option)
	at := "redis-sentinel://" + strings.Join(option.InitAddress, ",") + "/" + option.Sentinel.MasterSet
	end := filepath.Join(t.TempDir(), "end")
	p := startLock(t, at, append([]string{"-ttl", "9s", "orders"},
		"--", "sh", "-c", `echo runs; until [ -e "$1" ]; do sleep 0.02; done; exit 4`, "sh", end)...)
	p.says("runs")
	sentinel.Failover()
	untilSeen(t, l, "orders", func(s rwlock.State) bool {
		return len(s.Holders) == 1 && s.Holders[0].Held > 9*time.Second
	})
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	require.Equal(t, 4, p.status(), "%s", &p.errs)
}

// The command of an inner fencelock has a group of its own, and ends with the outer lock all the same: its output is
// closed before the next holder enters.
func TestLockEndsInnerCommands(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	p := startLock(t, urlOf(server), "-ttl", "6s", "outer", "--", "sh", "-c",
		`"$FENCELOCK" lock `+patience+` inner -- sh -c 'sh -c "echo runs; `+until+`"; :'; :`)
	p.says("runs")
	commandOn(t, server, "FLUSHALL")
	require.Equal(t, statusLost, p.status())
}

// The kernel ends the command with fencelock.
func TestLockKilled(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	p := startLock(t, urlOf(server), append([]string{"-ttl", "6s", "orders"}, shell("exec sleep 1000")...)...)
	p.says("runs")
	p.signal(syscall.SIGKILL)
	p.status() // the sleep has its output, so it has ended
	require.Equal(t, statusOK, startLock(t, urlOf(server), "orders", "--", "true").status())
}

func TestLockPassesSignalsOn(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	for sig, name := range map[syscall.Signal]string{
		syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGTERM: "TERM",
		syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(sig) { // nohup started the tests: children inherit that, but not what is handled
				signal.Notify(make(chan os.Signal, 1), sig)
			}
			p := startLock(t, urlOf(server), append([]string{name}, "--", "sh", "-c", "trap 'echo got; exit 3' "+name+
				"; echo runs; "+until)...)
			p.says("runs")
			waiting := startLock(t, urlOf(server), name, "--", "echo", "never")
			l := application(t, server.Option())
			untilSeen(t, l, name, func(s rwlock.State) bool { return len(s.Waiters) == 1 })
			waiting.signal(sig)
			require.Equal(t, 128+int(sig), waiting.status())
			untilSeen(t, l, name, func(s rwlock.State) bool { return len(s.Waiters) == 0 })
			p.signal(sig)
			require.Equal(t, 3, p.status())
			require.Equal(t, "runs\ngot\n", p.out.String())
			require.Empty(t, waiting.out.String())
		})
	}
}

// Fifty wait for one lock, and run one at a time, in the order in which they came.
func TestLockFiftyAtOnce(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	l := application(t, server.Option())
	first := hold(t, l, "orders")
	log := filepath.Join(t.TempDir(), "log")
	const crowd = 50
	var all []*started
	for i := range crowd {
		script := fmt.Sprintf(`echo in %d >>"$1"; echo out %d >>"$1"`, i, i)
		all = append(all, startLock(t, urlOf(server), "orders", "--", "sh", "-c", script, "sh", log))
		untilSeen(t, l, "orders", func(s rwlock.State) bool { return len(s.Waiters) == i+1 })
	}
	require.NoError(t, first.Release(t.Context()))
	want := ""
	for i, p := range all {
		require.Equal(t, statusOK, p.status(), "%s", &p.errs)
		want += fmt.Sprintf("in %d\nout %d\n", i, i)
	}
	require.Equal(t, want, string(expect.NoError(os.ReadFile(log)).In(t)))
}

// Two machines whose clocks are a second apart have the same cron line: it runs once per tick.
func TestLockOncePerTick(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	for job := range testredis.Few(2, 4) {
		t.Run(fmt.Sprint("job ", job), func(t *testing.T) {
			t.Parallel()
			for tick := range testredis.Few(2, 5) {
				line := []string{
					"-min-hold", "20s", "-wait", "5s", "-ok-if-held", fmt.Sprintf("nightly-%d-%d", job, tick), "--", "echo",
					"ran",
				}
				one := startLock(t, urlOf(server), line...)
				time.Sleep(time.Second) // the clock of the second machine
				two := startLock(t, urlOf(server), line...)
				require.Equal(t, []int{0, 0}, []int{one.status(), two.status()}, "%s%s", &one.errs, &two.errs)
				require.Equal(t, "ran\n", one.out.String()+two.out.String())
			}
		})
	}
}

// Three masters are a quorum here too.
func TestLockOverAQuorum(t *testing.T) {
	t.Parallel()
	servers, addrs := startThree(t)
	holder := applicationOver(t, addrs)
	held := hold(t, holder, "orders", rwlock.WithMeta("web-1"))
	p := startLock(t, "redis://"+strings.Join(addrs, ","), "-try", "orders", "--", "true")
	require.Equal(t, statusWrong, p.status())
	require.Contains(t, p.errs.String(), "-quarantine sets the longest TTL")
	p = startLock(t, "redis://"+strings.Join(addrs, ","), "-quarantine", "1h", "-try", "orders", "--", "true")
	require.Equal(t, statusHeld, p.status(), "%s", &p.errs)
	require.NoError(t, held.Release(t.Context()))
	servers[1].Kill()
	p = startLock(t, "", "-quarantine", "1h", "-addr", strings.Join(addrs, ","), "orders", "--", "sh", "-c", "exit 5")
	require.Equal(t, 5, p.status(), "%s", &p.errs)
	servers[2].Kill()
	p = startLock(t, "redis://"+strings.Join(addrs, ","), "-quarantine", "1h", "-wait", "500ms", "orders", "--", "true")
	require.Equal(t, statusNoAnswer, p.status(), "%s", &p.errs)
}

// Without a command another program holds the lock by standard input and reads the events.
func TestLockForAnotherProgram(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	for _, c := range [][]string{{"python3", "hold.py"}, {"bash", "hold.sh"}} {
		t.Run(c[0], func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(testredis.Program(t, c[0], c[0]), filepath.Join("..", "..", "examples", "coprocess", c[1]))
			cmd.Env = append(os.Environ(), asCommand+"=1", "FENCELOCK_URL="+urlOf(server),
				"FENCELOCK="+expect.NoError(os.Executable()).In(t))
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", text)
			require.Regexp(t, `^works with token \d+\n`, string(text))
		})
	}
}
