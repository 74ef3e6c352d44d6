package examples_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/testpostgres"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ *testing.M }

// postgres is the server of this run of tests.
var postgres testpostgres.Server

func (s suite) Run() int {
	testredis.Together()
	defer postgres.Stop()
	defer func() { _ = os.RemoveAll(built.folder) }()
	return s.M.Run()
}

// built has the examples in a folder, all made by one build.
var built struct {
	sync.Once
	folder string
	err    error
}

// process is a running example.
type process struct {
	t       *testing.T
	command *exec.Cmd
	lines   chan string // what it prints, closed at its end
	printed []string    // all of that, when wait has returned
	waited  bool
}

// start runs n processes of an example with the same arguments. Those that still run are killed when the test ends.
func start(t *testing.T, n int, example string, args ...string) (all []*process) {
	t.Helper()
	built.Do(func() {
		if built.folder, built.err = os.MkdirTemp("", "examples"); built.err != nil {
			return
		}
		output, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", built.folder+"/", "./...").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, output)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	for range n {
		command := exec.Command(filepath.Join(built.folder, example), args...)
		p := &process{t: t, command: command, lines: make(chan string, 1000)}
		command.Stderr = os.Stderr
		output, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(p.lines)
			for scanner := bufio.NewScanner(output); scanner.Scan(); {
				p.printed = append(p.printed, scanner.Text())
				p.lines <- scanner.Text()
			}
		}()
		t.Cleanup(func() { p.kill() })
		all = append(all, p)
	}
	return all
}

// patience bounds the wait for an event that never comes.
const patience = time.Minute

// firstOf waits for a line that begins with a word, from any of the processes.
func firstOf(all []*process, word string) (from *process, line string) {
	all[0].t.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(time.Millisecond) {
		for _, p := range all {
			select {
			case line := <-p.lines:
				if strings.HasPrefix(line, word) {
					return p, line
				}
			default:
			}
		}
	}
	all[0].t.Fatalf("no process has printed %q", word)
	return nil, ""
}

// until waits for a line that begins with a word, and returns its second word.
func (p *process) until(word string) string {
	p.t.Helper()
	_, line := firstOf([]*process{p}, word)
	return strings.Fields(line)[1]
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns when the process has ended, with an error unless its status was 0.
func (p *process) wait() error {
	if p.waited {
		return nil
	}
	p.waited = true
	for range p.lines { // all of it is read before Wait closes the pipe
	}
	return p.command.Wait()
}

// kill ends the process, if it still runs, and returns all that it has printed.
func (p *process) kill() []string {
	_ = p.command.Process.Kill()
	_ = p.wait()
	return p.printed
}

// The second service is inside the section of the first: the same token, and no waiting.
func TestServices(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	stock := start(t, 1, "services", "-redis", server.Addr())[0].until("listening")
	orders := start(t, 1, "services", "-redis", server.Addr(), "-stock", stock)[0].until("listening")
	for range 2 { // the lock is free again
		status, body := post(t, orders+"/orders/7", "")
		require.Equal(t, http.StatusOK, status, body)
		words := strings.Fields(body) // ordered under TOKEN reserved under TOKEN
		require.Len(t, words, 6, body)
		require.Equal(t, words[2], words[5])
	}
}

// post returns the answer to a request with this text, 0 and the error if there is none.
func post(t *testing.T, url, text string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post(url, "", strings.NewReader(text))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(answer)
}

// The first leader is asked to end, the second is killed, and the third leads then. The tokens go up.
func TestLeader(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	candidates := start(t, 3, "leader", "-redis", server.Addr(), "-ttl", "3s")
	var token uint64
	next := func() *process {
		leader, line := firstOf(candidates, "leading")
		newer, err := strconv.ParseUint(strings.Fields(line)[1], 10, 64)
		require.NoError(t, err)
		require.Greater(t, newer, token)
		token = newer
		return leader
	}
	first := next()
	first.signal(syscall.SIGTERM)
	first.until("resigning")
	require.NoError(t, first.wait())
	second := next()
	second.signal(syscall.SIGKILL)
	require.Error(t, second.wait())
	require.NotContains(t, []*process{first, second}, next())
}

// A worker is killed inside its job. Until then no other worker has that job, and afterwards one does it. Each job is
// done once.
func TestQueue(t *testing.T) {
	t.Parallel()
	const jobs = 20
	server := testredis.Start(t)
	push := []string{"RPUSH", "{jobs}:pending"}
	for job := range jobs {
		push = append(push, strconv.Itoa(job))
	}
	_, err := server.Command(push...)
	require.NoError(t, err)
	args := []string{"-redis", server.Addr(), "-ttl", "3s", "-poll", "20ms"}
	killed := start(t, 1, "queue", append(args, "-work", "1h")...)[0]
	first := killed.until("working")
	workers := start(t, 2, "queue", append(args, "-work", "0")...)
	for range jobs - 1 {
		_, line := firstOf(workers, "done")
		require.NotEqual(t, "done "+first, line, "a job that a worker is in")
	}
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	_, line := firstOf(workers, "done")
	require.Equal(t, "done "+first, line)

	done := map[string]int{}
	for _, p := range workers {
		for _, line := range p.kill() {
			if words := strings.Fields(line); words[0] == "done" {
				done[words[1]]++
			}
		}
	}
	require.Len(t, done, jobs)
	for job, n := range done {
		require.Equal(t, 1, n, "job %s", job)
	}
	left, err := server.Command("EXISTS", "{jobs}:pending")
	require.NoError(t, err)
	require.Zero(t, left)
}

// Three processes run a job that does not end. The first one is killed at its tick, the second one is asked to end, and
// others run later ticks. No tick runs twice.
func TestCron(t *testing.T) {
	t.Parallel()
	args := []string{"-redis", testredis.Start(t).Addr(), "-period", "100ms"}
	three := start(t, 3, "cron", append(args, "-work", "1h")...)
	killed, _ := firstOf(three, "running")
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	without := func(p *process) {
		three = slices.DeleteFunc(three, func(q *process) bool { return q == p })
	}
	without(killed)
	stopped, _ := firstOf(three, "running")
	stopped.signal(syscall.SIGTERM)
	require.NoError(t, stopped.wait())
	without(stopped)
	three[0].until("running")

	next := start(t, 2, "cron", append(args, "-work", "0")...)
	for range 3 {
		firstOf(next, "done")
	}
	runs := map[string]int{}
	for _, p := range append(next, killed, stopped, three[0]) {
		for _, line := range p.kill() {
			if words := strings.Fields(line); words[0] == "running" {
				runs[words[1]]++
			}
		}
	}
	for tick, n := range runs {
		require.Equal(t, 1, n, "runs of the tick %s", tick)
	}
	require.GreaterOrEqual(t, len(runs), 6)
}

// A writer is killed inside its change. The readers wait until its lock is over, and see the configuration from before.
// The next writer finds them at work, and they see what it has written. Reads cost no command.
func TestConfig(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	args := []string{"-redis", server.Addr(), "-ttl", "2s"}
	write := func(text string) { require.NoError(t, start(t, 1, "config", append(args, "-set", text)...)[0].wait()) }
	write("limit=1 colour=blue")
	readers := start(t, 2, "config", args...)
	for _, p := range readers {
		require.Equal(t, "limit=1", p.until("config"))
	}
	killed := start(t, 1, "config", append(args, "-set", "limit=2 colour=red", "-work", "1h")...)[0]
	killed.until("changing")
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	readers = append(readers, start(t, 1, "config", args...)...)
	require.Equal(t, "limit=1", readers[2].until("config"))
	write("limit=3 colour=green")
	for _, p := range readers {
		require.Equal(t, "limit=3", p.until("config"))
	}
	readers[2].until("reads") // 1,000 of them

	for _, p := range readers {
		p.signal(syscall.SIGTERM)
		require.NoError(t, p.wait())
		var seen []string
		for _, line := range p.printed {
			if strings.HasPrefix(line, "config") {
				seen = append(seen, line)
			}
		}
		require.Equal(t, []string{"config limit=1 colour=blue", "config limit=3 colour=green"}, seen)
	}
	scripts := 0
	for name, stat := range server.Stats() {
		if strings.HasPrefix(name, "eval") {
			scripts += stat.Calls
		}
	}
	require.Less(t, scripts, 1000)
}
