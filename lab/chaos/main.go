package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/lab/chaos/check"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// workerVariable has the configuration of a worker process.
const workerVariable = "FENCELOCK_CHAOS_WORKER"

type config struct {
	deployment                                   string
	masters, replicas, processes, workers, names int
	long                                         int
	duration, gap                                time.Duration
	seed                                         uint64
	faults                                       string
	valkey                                       bool
	out, check                                   string
	peers, plot                                  string

	forms   []string
	library string // the lock library whose turn it is, "" for the mix of this one's forms
	durable bool   // each of several masters keeps its data over a restart
}

var errViolated = errors.New("promises were broken")

func main() {
	if text := os.Getenv(workerVariable); text != "" {
		var cfg workerConfig
		err := json.Unmarshal([]byte(text), &cfg)
		if err == nil {
			err = runWorker(cfg)
		}
		exit(err)
	}
	var cfg config
	flag.StringVar(&cfg.deployment, "deployment", servers,
		"what each master is: servers, embedded, or as one master to its clients sentinel or cluster")
	flag.IntVar(&cfg.masters, "masters", 3, "number of independent masters, or 1")
	flag.IntVar(&cfg.replicas, "replicas", 0, "how many replicas of a master must have a grant")
	flag.IntVar(&cfg.processes, "processes", 4, "number of worker processes")
	flag.IntVar(&cfg.workers, "workers", 4, "goroutines that use locks in each process")
	flag.IntVar(&cfg.names, "names", 4, "number of locks, and as many RWMutexes")
	flag.IntVar(&cfg.long, "long", 100, "one of so many sections lasts for up to two TTLs")
	flag.DurationVar(&cfg.duration, "for", 3*time.Minute, "how long faults strike")
	flag.DurationVar(&cfg.gap, "gap", 700*time.Millisecond, "the longest time between two faults")
	flag.Uint64Var(&cfg.seed, "seed", 0, "of the faults; 0 draws one")
	flag.StringVar(&cfg.faults, "faults", "", "the kinds, separated by commas; all if empty: "+
		strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	forms := flag.String("forms", "", "the forms of the API, separated by commas; the mix if empty: "+
		strings.Join(slices.Compact(slices.Clone(mix)), ", "))
	flag.BoolVar(&cfg.valkey, "valkey", false, "run valkey-server")
	flag.StringVar(&cfg.out, "out", "", "save the history in this file, compressed")
	flag.StringVar(&cfg.check, "check", "", "judge a saved history instead of a run")
	flag.StringVar(&cfg.peers, "peers", "", "compare lock libraries instead, separated by commas, or all: "+libraryNames())
	flag.StringVar(&cfg.plot, "plot", "", "draw the comparison into this file, as SVG")
	flag.Parse()
	if *forms != "" {
		cfg.forms = strings.Split(*forms, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, cfg, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.check != "" {
		h, err := history.Load(cfg.check)
		if err != nil {
			return err
		}
		return judge(out, h, nil)
	}
	if cfg.seed == 0 {
		cfg.seed = rand.Uint64()
	}
	if cfg.peers != "" {
		return compare(ctx, cfg, out)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(name string) bool { return asked[name] })
	if cfg.faults != "" {
		names = strings.Split(cfg.faults, ",")
	}
	for _, name := range names {
		if kinds[name] == nil {
			return fmt.Errorf("no fault is called %q", name)
		}
	}
	if cfg.forms == nil {
		cfg.forms = mix
	}
	for _, form := range cfg.forms {
		if !slices.Contains(mix, form) {
			return fmt.Errorf("no form is called %q", form)
		}
	}
	if cfg.deployment == cluster || cfg.deployment == sentinel {
		cfg.masters = 1
	}
	if !slices.Contains([]string{servers, embedded, sentinel, cluster}, cfg.deployment) {
		return fmt.Errorf("no deployment is called %q", cfg.deployment)
	}
	if cfg.long < 1 {
		return fmt.Errorf("-long is %d, and must be positive", cfg.long)
	}
	fmt.Fprintf(out, "seed %d, %s, %d masters, %v\n", cfg.seed, cfg.deployment, cfg.masters, cfg.duration)
	var seen []check.Violation
	h := &history.History{}
	err := harness.Run(ctx, func(t testing.TB) (err error) {
		seen, err = attack(t, cfg, names, h, out)
		return err
	})
	h.Sort()
	if err == nil {
		err = judge(out, h, seen)
	}
	if err != nil && cfg.out == "" {
		cfg.out = filepath.Join(os.TempDir(), fmt.Sprintf("chaos-%d.json.gz", cfg.seed))
	}
	if cfg.out != "" {
		err = errors.Join(err, h.Save(cfg.out))
	}
	if err != nil {
		return fmt.Errorf("seed %d, history in %s: %w", cfg.seed, cfg.out, err)
	}
	return nil
}

// progress says each second how long the attack goes on. The result ends that.
func progress(out io.Writer, whole time.Duration) (over func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			doing := "faults strike"
			passed := time.Since(began)
			if passed > whole {
				doing = "the servers are in order again, and the workers finish"
			}
			fmt.Fprintf(out, "%.0fs of %v: %s\n", passed.Seconds(), whole, doing)
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// attack runs workers under faults and fills the history. It returns what no history shows: the locks that are left on
// the masters at the end, and script calls that differed from their model.
func attack(
	t testing.TB, cfg config, names []string, h *history.History, out io.Writer,
) (seen []check.Violation, err error) {
	a := newArena(t, cfg)
	over := progress(out, cfg.duration)
	err = a.fight(names, h)
	over()
	if err != nil {
		return nil, err
	}
	var left []string
	if !a.differs() {
		time.Sleep(3 * max(a.longest, 3*time.Second)) // the last of what expires has expired
		left, err = a.left(t.Context())
	}
	for _, text := range left {
		seen = append(seen, check.Violation{Rule: "left", Text: text})
	}
	for i, s := range a.embeddedServers() {
		fmt.Fprintf(out, "master %d: %d script calls as in the model; not compared: %v\n", i, s.trace.Checked,
			s.trace.Skipped)
		for _, err := range s.differences() {
			seen = append(seen, check.Violation{Rule: "script", Text: err.Error()})
		}
	}
	return seen, err
}

// judge prints a description of the run and every promise that it breaks.
func judge(out io.Writer, h *history.History, seen []check.Violation) error {
	ends, causes, struck := map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range h.Spans {
		ends[s.Form+" "+s.End]++
	}
	for _, f := range h.Failures {
		causes[f.Form+" "+f.Cause]++
	}
	for _, f := range h.Faults {
		struck[f.Kind]++
	}
	table(out, "sections", ends)
	table(out, "failures of calls, as they should", causes)
	table(out, "faults", struck)
	for _, f := range h.Failures {
		if f.Cause == "other" {
			fmt.Fprintf(out, "other failure: %s: %s\n", f.Form, f.Err)
		}
	}
	judgement := check.All(h, check.Busy)
	table(out, "judged", judgement.Judged)
	fmt.Fprintf(out, "lost updates: %d with a guard, %d without\n", check.LostUpdates(h, history.Fenced),
		check.LostUpdates(h, ""))
	judgement.Violations = append(judgement.Violations, seen...)
	rules := map[string]int{}
	for _, v := range judgement.Violations {
		if rules[v.Rule]++; rules[v.Rule] <= 5 {
			fmt.Fprintf(out, "VIOLATION %s: %s\n", v.Rule, v.Text)
			for _, s := range v.Spans {
				fmt.Fprintf(out, "    %+v\n", s)
			}
			for _, a := range v.Accesses {
				fmt.Fprintf(out, "    %+v\n", a)
			}
			for _, hold := range v.Holds {
				fmt.Fprintf(out, "    %+v\n", hold)
			}
		}
	}
	if len(judgement.Violations) > 0 {
		table(out, "violations", rules)
		return errViolated
	}
	fmt.Fprintln(out, "OK: 0 violations")
	return nil
}

// table prints how often each of some things has happened, and their sum.
func table(out io.Writer, title string, counts map[string]int) {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	fmt.Fprintf(out, "%d %s\n", sum, title)
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "  %-32s%9d\n", what, counts[what])
	}
}

// commit names the state of the checkout as git describes it, "" if git fails.
func commit() string {
	text, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
