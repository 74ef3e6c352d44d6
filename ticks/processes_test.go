package ticks_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

// apart is the time between two ticks of the processes.
const apart = 200 * time.Millisecond

// asProcess in the environment makes this program one of the processes: the address of the server, by how much its
// clock is ahead, and how it learns that a tick is due.
const asProcess = "FENCELOCK_TEST_TICKS"

// runAsProcess prints the tick of each run, until SIGTERM.
func runAsProcess() {
	args := strings.Fields(os.Getenv(asProcess))
	if len(args) != 3 {
		return
	}
	ahead, err := time.ParseDuration(args[1])
	if err != nil {
		log.Fatal(err)
	}
	client, err := rwlock.Dial(args[0], rueidis.ClientOption{ClientName: "ticks"})
	if err != nil {
		log.Fatal(err)
	}
	t, err := ticks.New(client)
	if err != nil {
		log.Fatal(err)
	}
	clock := func() time.Time { return time.Now().Add(ahead) }
	t.SetClock(clock)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	tick := func(due time.Time) {
		_, _ = t.Do(context.Background(), "report", due, func(context.Context) error {
			fmt.Println("run", due.UnixMicro())
			return nil
		})
	}
	if args[2] == "every" {
		for due := range t.Every(ctx, apart) {
			tick(due)
		}
	} else {
		schedule(ctx, clock, tick)
	}
	stop()
	client.Close()
	os.Exit(0)
}

// schedule starts each tick on a goroutine by a clock of its own, as robfig/cron does.
func schedule(ctx context.Context, clock func() time.Time, tick func(time.Time)) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		due := clock().Truncate(apart).Add(apart)
		select {
		case <-time.After(due.Sub(clock())):
			all.Go(func() { tick(due) })
		case <-ctx.Done():
			return
		}
	}
}

// Processes whose clocks are seconds apart are killed and started again, paused, and lose their connections. No tick
// runs twice. A tick that was claimed runs, or its process was killed. A tick that was asked for was claimed, or a
// later one before it.
func TestProcessesThatFail(t *testing.T) {
	testredis.Require(t)
	for _, how := range []string{"every", "own"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			j := &judge{T: t, server: testredis.Start(t), killed: map[string]bool{}, runs: map[string]int{}}
			expect.NoError(newTicks(t, j.server.Client(t)).Do(t.Context(), "report", time.UnixMicro(1), nothing)).In(t)
			end := j.monitor()
			j.disturb(how, testredis.Few(4*time.Second, 40*time.Second))
			end()
			j.verdict(how)
		})
	}
}

type judge struct {
	*testing.T
	server *testredis.Server
	seen   []string // by MONITOR

	mu     sync.Mutex
	killed map[string]bool // process ids
	runs   map[string]int  // by tick
}

// monitor collects the commands of the server, in their order. end returns when it has all until then.
func (j *judge) monitor() (end func()) {
	conn := expect.NoError(net.Dial("tcp", j.server.Addr())).In(j)
	expect.NoError(conn.Write([]byte("MONITOR\r\n"))).In(j)
	lines := bufio.NewScanner(conn)
	require.True(j, lines.Scan())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() && !strings.Contains(lines.Text(), `"ECHO" "the end"`) {
			j.seen = append(j.seen, lines.Text())
		}
	}()
	return func() {
		expect.NoError(j.server.Command("ECHO", "the end")).In(j)
		<-done
		_ = conn.Close()
	}
}

// child is a process.
type child struct {
	*exec.Cmd
	read sync.WaitGroup
}

func (j *judge) start(how string, ahead time.Duration) *child {
	c := &child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v %s", asProcess, j.server.Addr(), ahead, how))
	c.Stderr = os.Stderr
	output := expect.NoError(c.StdoutPipe()).In(j)
	require.NoError(j, c.Start())
	j.Cleanup(func() { _ = c.Process.Kill() })
	c.read.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if tick, is := strings.CutPrefix(lines.Text(), "run "); is {
				j.mu.Lock()
				j.runs[tick]++
				j.mu.Unlock()
			}
		}
	})
	return c
}

func (j *judge) end(c *child, by syscall.Signal) {
	if by == syscall.SIGKILL {
		j.killed[strconv.Itoa(c.Process.Pid)] = true
	}
	require.NoError(j, c.Process.Signal(by))
	c.read.Wait()
	_ = c.Wait()
}

// disturb has five processes, at least two of which are left alone at any moment.
func (j *judge) disturb(how string, lasts time.Duration) {
	clocks := []time.Duration{-3 * time.Second, -time.Second, 0, time.Second, 3 * time.Second}
	var all []*child
	for _, ahead := range clocks {
		all = append(all, j.start(how, ahead))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for begun := time.Now(); time.Since(begun) < lasts; time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond) {
		i := rng.IntN(len(all))
		switch rng.IntN(3) {
		case 0:
			j.end(all[i], syscall.SIGKILL)
			all[i] = j.start(how, clocks[i])
		case 1:
			other := (i + 1 + rng.IntN(2)) % len(all)
			for _, c := range []*child{all[i], all[other]} {
				require.NoError(j, c.Process.Signal(syscall.SIGSTOP))
			}
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			for _, c := range []*child{all[i], all[other]} {
				require.NoError(j, c.Process.Signal(syscall.SIGCONT))
			}
		default:
			j.dropConnection(rng)
		}
	}
	for _, c := range all {
		j.end(c, syscall.SIGTERM)
	}
}

var clientID = regexp.MustCompile(`(?m)^id=(\d+) .* name=ticks `)

// dropConnection ends one of the processes' connections, perhaps before an answer was sent.
func (j *judge) dropConnection(rng *rand.Rand) {
	list := expect.NoError(j.server.Command("CLIENT", "LIST")).In(j).(string)
	if ids := clientID.FindAllStringSubmatch(list, -1); len(ids) > 0 {
		_, _ = j.server.Command("CLIENT", "KILL", "ID", ids[rng.IntN(len(ids))][1])
	}
}

var (
	asked   = regexp.MustCompile(`^\+(\d+)\.(\d{6}) .*"EVAL(?:SHA)?" .* "ticks:\{report\}" "[^"]*" "(\d+)" `)
	claimed = regexp.MustCompile(`"HSET" "ticks:\{report\}" "tick" "([^"]*)" "by" "[^"]*:(\d+) `)
)

// verdict looks at what the server has seen and at what the processes have done.
func (j *judge) verdict(how string) {
	claims, late := map[string]string{}, map[string]bool{} // the process of each tick; ticks asked for too late
	var newest int64
	for _, line := range j.seen {
		if m := claimed.FindStringSubmatch(line); m != nil {
			due := expect.NoError(time.Parse(time.RFC3339Nano, m[1])).In(j)
			tick := strconv.FormatInt(due.UnixMicro(), 10)
			require.Empty(j, claims[tick], "the tick %s is claimed twice", m[1])
			claims[tick], newest = m[2], due.UnixMicro()
			continue
		}
		if m := asked.FindStringSubmatch(line); m != nil {
			tick := expect.NoError(strconv.ParseInt(m[3], 10, 64)).In(j)
			if now := expect.NoError(strconv.ParseInt(m[1]+m[2], 10, 64)).In(j); now >= tick && tick < newest {
				late[m[3]] = true
			}
		}
	}
	for tick, n := range j.runs {
		require.Equal(j, 1, n, "runs of the tick %s", tick)
		require.NotEmpty(j, claims[tick], "a run without a claim")
	}
	died := 0
	for tick, process := range claims {
		if j.runs[tick] == 0 {
			require.True(j, j.killed[process], "%s claimed the tick %s, was not killed, and did not run it", process, tick)
			died++
		}
	}
	ticks := slices.Sorted(func(yield func(string) bool) {
		for tick := range claims {
			if !yield(tick) {
				return
			}
		}
	})
	require.Greater(j, len(ticks), 5)
	first := expect.NoError(strconv.ParseInt(ticks[0], 10, 64)).In(j)
	last := expect.NoError(strconv.ParseInt(ticks[len(ticks)-1], 10, 64)).In(j)
	missed, tooLate := 0, 0
	for tick := first; tick <= last; tick += apart.Microseconds() {
		text := strconv.FormatInt(tick, 10)
		if claims[text] != "" {
			continue
		}
		missed++
		if late[text] {
			tooLate++
		}
	}
	j.Logf("%s: %d ticks claimed, %d runs, %d killed between claim and run (%d killed in all), %d ticks not claimed, "+
		"of these %d asked for after a later one", how, len(claims), len(j.runs), died, len(j.killed), missed, tooLate)
}
