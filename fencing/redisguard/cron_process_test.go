package redisguard_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

var cronTicks = flag.Int("redisguard.ticks", 0, "how many ticks processes run on a server, of which none is missed")

// cronLate is by how much a machine may wake a process late, and be slow in what it does then: with the clocks' offset
// and the work it is less than the minimum hold.
const cronLate = 500 * time.Millisecond

// cronWorker is set in the environment of a process: its recipe, the server and how late its clock is.
const cronWorker = "REDISGUARD_CRON"

var recipes = map[string]func(client rueidis.Client) (tick, func() error){
	"register": byRegister,
	"lock":     byLock,
}

// TestCronWorker is a process of TestCronOfProcesses. It prints the tick when its work begins and when it ends.
func TestCronWorker(t *testing.T) {
	told := strings.Fields(os.Getenv(cronWorker))
	if len(told) == 0 {
		t.Skip("only as a process of another test")
	}
	late, err := time.ParseDuration(told[2])
	require.NoError(t, err)
	option := testredis.ClientOption(told[1])
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	run, closeAll := recipes[told[0]](client)
	ctx, _ := signal.NotifyContext(t.Context(), syscall.SIGTERM) // for good: the signal may come twice
	fmt.Println("ready")
	atEachTick(ctx, late, func(due time.Time) {
		defer func() {
			if time.Since(due.Add(late)) > cronLate {
				fmt.Println("late", due.UnixMicro())
			}
		}()
		_, err := run(context.WithoutCancel(ctx), due, func(context.Context) error {
			fmt.Println("begin", due.UnixMicro())
			time.Sleep(cronWork)
			fmt.Println("end", due.UnixMicro())
			return nil
		})
		require.NoError(t, err)
	})
	require.NoError(t, closeAll())
	fmt.Println("closed")
}

// cronProcess is a process that runs ticks.
type cronProcess struct {
	*exec.Cmd
	late   time.Duration
	killed bool
	text   []string
}

func (p *cronProcess) kill() {
	p.killed = true
	_ = p.Process.Kill() // it may have ended
}

// terminate sends SIGTERM. A process that has just been started has no handler for it yet.
func (p *cronProcess) terminate() {
	if !slices.Contains(p.text, "ready") {
		p.kill()
		return
	}
	_ = p.Process.Signal(syscall.SIGTERM)
}

// cronEvent is a line of a process, or its end.
type cronEvent struct {
	of   *cronProcess
	line string // "" when it has ended
}

func startCronProcess(t *testing.T, recipe, addr string, late time.Duration, events chan<- cronEvent) *cronProcess {
	t.Helper()
	p := &cronProcess{Cmd: exec.Command(os.Args[0], "-test.run=^TestCronWorker$"), late: late}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %v", cronWorker, recipe, addr, late))
	output, err := p.StdoutPipe()
	require.NoError(t, err)
	p.Stderr = os.Stderr
	require.NoError(t, p.Start())
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			events <- cronEvent{p, lines.Text()}
		}
		_, _ = io.Copy(io.Discard, output)
		events <- cronEvent{p, ""}
	}()
	return p
}

// Three processes with clocks 100 ms apart run ticks on a server, while SIGKILL and SIGTERM end them, at work and idle.
// A run that was killed counts as one. By the register no tick runs twice, however slow the machine is. That the lock
// lets none run twice, and that none is missed, is required where the flag asks for it, unless a process was late.
func TestCronOfProcesses(t *testing.T) {
	for recipe := range recipes {
		t.Run(recipe, func(t *testing.T) {
			if recipe == "lock" && *cronTicks == 0 {
				t.Skip("asked for by -redisguard.ticks")
			}
			t.Parallel()
			ticks := max(*cronTicks, 3)
			runs, late, ends := cronOfProcesses(t, recipe, ticks)
			t.Logf("%d ticks, late at %d, %v", len(runs), len(late), ends)
			if *cronTicks > 0 {
				requireOnce(t, ticks, runs, late...)
			}
			for due, n := range runs {
				require.True(t, n == 1 || recipe == "lock", "the tick at %v", due)
			}
		})
	}
}

// cronOfProcesses returns how often each tick ran, at which ticks a process was late, and how processes have ended.
func cronOfProcesses(
	t *testing.T, recipe string, ticks int,
) (runs map[time.Time]int, late []time.Time, ends map[string]int) {
	addr := testredis.Start(t).Addr()
	events := make(chan cronEvent)
	alive := map[*cronProcess]bool{}
	for i := range cronCrowd {
		alive[startCronProcess(t, recipe, addr, time.Duration(i)*cronOffset, events)] = true
	}
	runs, ends = map[time.Time]int{}, map[string]int{}
	for begun := 0; len(alive) > 0; {
		event := <-events
		p := event.of
		p.text = append(p.text, event.line)
		var due int64
		if _, err := fmt.Sscanf(event.line, "begin %d", &due); err == nil {
			begun++
			runs[time.UnixMicro(due)]++
			if begun < ticks {
				disturb(alive, p, begun, ends)
			}
			if begun == ticks {
				for p := range alive {
					p.terminate()
				}
			}
		}
		if _, err := fmt.Sscanf(event.line, "late %d", &due); err == nil {
			late = append(late, time.UnixMicro(due), time.UnixMicro(due).Add(cronPeriod))
		}
		if event.line != "" {
			continue
		}
		err := p.Wait()
		require.True(t, p.killed || err == nil, "%v: %v", err, p.text)
		delete(alive, p)
		if begun < ticks {
			alive[startCronProcess(t, recipe, addr, p.late, events)] = true
		}
	}
	return runs, late, ends
}

// disturb ends a process at some ticks: the one that has begun its work, or another.
func disturb(alive map[*cronProcess]bool, worker *cronProcess, tick int, ends map[string]int) {
	idle := worker
	for p := range alive {
		if p != worker {
			idle = p
		}
	}
	switch tick % 6 {
	case 1:
		worker.kill()
		ends["killed at work"]++
	case 2:
		worker.terminate()
		ends["terminated at work"]++
	case 4:
		idle.kill()
		ends["killed"]++
	case 5:
		idle.terminate()
		ends["terminated"]++
	}
}
