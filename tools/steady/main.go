// Command steady looks for tests that fail now and then. It builds the tests of each package once and runs them many
// times: tests of less than a second 200 times, together and shuffled, longer tests 20 times, each alone. Each process
// has one of -cpu 1, 2 and 4, drawn. Every second one has a load next to it: 8 goroutines that keep 8 threads busy.
// It prints the tests that have ever failed, with the output of their first failure, and ends with status 1 then. It
// prints the SHA-256 of each test program, since runs of equal programs, with equal files beside them, can be added up.
//
//	go run -C tools ./steady                                # the root module, for many hours
//	go run -C tools ./steady -for 1h -run Crowd ./rwlock    # within an hour, round by round
//	FENCELOCK_TESTS=all go run -C tools ./steady work       # all modules, with the tests that a plain run leaves out
//
// The seed, which it prints, draws the processors and the orders of the tests. A test may still fail at another time.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// options are the flags and arguments.
type options struct {
	folder     string // in which packages are named
	packages   []string
	pattern    string
	short      int // runs of a test under a second
	long       int // runs of any other
	busy       int // goroutines of the load
	limit      time.Duration
	seed       uint64
	out        io.Writer
	executable string // the folder of the test binaries
}

func main() {
	o := options{folder: "..", out: os.Stdout}
	flag.StringVar(&o.pattern, "run", "", "only tests that match this pattern")
	flag.IntVar(&o.short, "short", 200, "runs of each test that takes less than a second")
	flag.IntVar(&o.long, "long", 20, "runs of each other test")
	flag.IntVar(&o.busy, "load", 8, "busy goroutines during every second run")
	flag.DurationVar(&o.limit, "for", 0, "begin no run after so long; 0: no limit")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64()%1e6, "draws processors and orders")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "steady:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

// run returns how many tests have failed at least once.
func run(ctx context.Context, o options) (failed int, err error) {
	runtime.GOMAXPROCS(o.busy + runtime.NumCPU()) // a thread for each goroutine of the load
	if o.executable, err = os.MkdirTemp("", "steady"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(o.executable) }()
	s := &search{
		options: o, random: rand.New(rand.NewPCG(o.seed, 0)), began: time.Now(),
		runs: map[string]int{}, failures: map[string]int{},
	}
	fmt.Fprintf(o.out, "seed %d\n", o.seed)
	packages, err := s.build(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range packages {
		s.measure(ctx, p)
	}
	for round := range max(o.short, o.long) {
		for _, p := range packages {
			if round < o.short && len(p.short) > 0 {
				s.try(ctx, p, round, p.short...)
			}
			for _, test := range p.long {
				if round < o.long {
					s.try(ctx, p, round, test)
				}
			}
		}
	}
	s.report(packages)
	return len(s.failures), ctx.Err()
}

// search is what has been run and has failed.
type search struct {
	options
	random    *rand.Rand
	began     time.Time
	processor time.Duration
	runs      map[string]int // by package and test
	failures  map[string]int
}

// tests are the tests of one package.
type tests struct {
	path, folder, binary, sum string
	short, long               []string
}

func (s *search) build(ctx context.Context) (all []*tests, err error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`
	list, err := s.command(ctx, append([]string{"list", "-f", format}, s.packages...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(list) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		p := &tests{path: path, folder: folder, binary: filepath.Join(s.executable, fmt.Sprint(len(all), ".test"))}
		if _, err := s.command(ctx, "test", "-c", "-trimpath", "-o", p.binary, path); err != nil {
			return nil, err
		}
		program, err := os.ReadFile(p.binary)
		if err != nil {
			return nil, err
		}
		p.sum = fmt.Sprintf("%x", sha256.Sum256(program))[:12]
		all = append(all, p)
	}
	return all, nil
}

// command runs the go command and returns its standard output.
func (s *search) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = s.folder, os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(output), nil
}

// silent are the lines that say nothing about a failure.
var silent = regexp.MustCompile(`(?m)^(=== (RUN|PAUSE|CONT|NAME) .*| *--- PASS: .*)\n`)

// ended is the line of a test of the package, but of none within it.
var ended = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \((\S+)s\)$`)

// measure runs every test once, as go test does, and sorts the tests by their time.
func (s *search) measure(ctx context.Context, p *tests) {
	output, ok := s.start(ctx, p, "-test.run", s.pattern)
	s.note(p, output, ok, "all at once")
	for _, match := range ended.FindAllStringSubmatch(output, -1) {
		switch took, err := time.ParseDuration(match[3] + "s"); {
		case match[1] == "SKIP":
		case err == nil && took < time.Second:
			p.short = append(p.short, match[2])
		default:
			p.long = append(p.long, match[2])
		}
	}
}

// try runs some tests in one process.
func (s *search) try(ctx context.Context, p *tests, round int, names ...string) {
	processors, order := []string{"1", "2", "4"}[s.random.IntN(3)], s.random.Uint32()
	if ctx.Err() != nil || s.limit > 0 && time.Since(s.began) > s.limit {
		return
	}
	how := fmt.Sprintf("-cpu %s -shuffle %d", processors, order)
	if round%2 == 1 {
		how += fmt.Sprintf(", with a load of %d", s.busy)
		defer load(s.busy)()
	}
	output, ok := s.start(ctx, p, "-test.run", "^("+strings.Join(names, "|")+")$", "-test.cpu", processors,
		"-test.shuffle", fmt.Sprint(order))
	if ctx.Err() == nil {
		s.note(p, output, ok, how)
	}
}

// start runs a process and returns its output, and whether it has ended well.
func (s *search) start(ctx context.Context, p *tests, args ...string) (string, bool) {
	cmd := exec.CommandContext(ctx, p.binary, append(args, "-test.v", "-test.timeout", "10m")...)
	cmd.Dir, cmd.WaitDelay = p.folder, time.Minute
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		s.processor += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return string(output), err == nil
}

// note counts what a process has run, and prints its output if a test has failed there for the first time.
func (s *search) note(p *tests, output string, ok bool, how string) {
	var failed []string
	for _, match := range ended.FindAllStringSubmatch(output, -1) {
		s.runs[p.path+" "+match[2]]++
		if match[1] == "FAIL" {
			failed = append(failed, match[2])
		}
	}
	if !ok && len(failed) == 0 {
		failed = []string{"(the process)"} // a panic, a timeout, a goroutine that was left
	}
	for _, name := range failed {
		name = p.path + " " + name
		if s.failures[name]++; s.failures[name] == 1 {
			fmt.Fprintf(s.out, "\n=== %s failed, %s, after %v\n%s\n", name, how, time.Since(s.began).Round(time.Second),
				silent.ReplaceAllString(output, ""))
		}
	}
}

// load keeps so many threads busy until stop is called.
func load(threads int) (stop func()) {
	var over atomic.Bool
	for range threads {
		go func() {
			for !over.Load() {
			}
		}()
	}
	return func() { over.Store(true) }
}

func (s *search) report(packages []*tests) {
	for _, p := range packages {
		fmt.Fprintf(s.out, "%s %s: at least %d runs of %d tests, %d of %d longer ones\n", p.sum, p.path,
			s.least(p, p.short), len(p.short), s.least(p, p.long), len(p.long))
	}
	total := 0
	for _, n := range s.runs {
		total += n
	}
	fmt.Fprintf(s.out, "%d runs of %d tests in %.2f h of the machine, %.2f h of its processors\n",
		total, len(s.runs), time.Since(s.began).Hours(), s.processor.Hours())
	for _, name := range slices.Sorted(maps.Keys(s.failures)) {
		fmt.Fprintf(s.out, "%s: failed in %d of %d\n", name, s.failures[name], s.runs[name])
	}
	if len(s.failures) == 0 {
		fmt.Fprintln(s.out, "no test has failed")
	}
}

// least returns how often the test with the fewest runs has run.
func (s *search) least(p *tests, names []string) (least int) {
	for i, name := range names {
		if n := s.runs[p.path+" "+name]; i == 0 || n < least {
			least = n
		}
	}
	return least
}
