package examples_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
