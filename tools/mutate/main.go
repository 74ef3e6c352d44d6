// Command mutate judges tests by bugs without a test of their own. It makes mutants of the source (a condition or a
// bool that is returned negated, an operand of "and" or "or" dropped, a case missed, a statement deleted, a comparison
// or a constant off by one), runs each against the tests that reach it, and writes a line per mutant: its place, the
// change, which tests killed it, and after how many seconds.
//
//	go run -C tools ./mutate ./rwlock ./internal/engine                       # 100 mutants, the tests of two packages
//	go run -C tools ./mutate -in scripts ./scripts ./internal/test/scriptfuzz # of the scripts
//	go run -C tools ./mutate -doubt 'TestMine$' ./rwlock                      # does it kill more than the rest?
//
// Tests of -doubt run only where no other test kills a mutant; a test that reads the source itself belongs there. All
// mutants are in the same test binaries, and FENCELOCK_MUTANT selects one, so each package is built once. First each
// test runs alone, without a mutant, to see how long it takes and which mutants it reaches. A mutant that makes a test
// hang is killed by it. A kill counts if the same tests pass right after it, without the mutant.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// options are the flags and arguments.
type options struct {
	root     string   // of the module that is mutated
	in       []string // folders below it
	packages []string // their tests run
	seed     uint64
	count    int
	doubt    string
	until    int
	parallel int
	keep     string
	out      io.Writer
}

func main() {
	o := options{root: "..", out: os.Stdout}
	in := flag.String("in", "internal/engine,rwlock,internal/transport,internal/masterset", "mutate these folders")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64()%1e6, "draws the mutants")
	flag.IntVar(&o.count, "count", 100, "how many mutants; 0: all that a test reaches")
	flag.StringVar(&o.doubt, "doubt", "", "tests, as ./package.TestName, that run where no other test kills a mutant")
	flag.IntVar(&o.until, "until", 1, "look for so many tests that kill a mutant; 0: for all of them")
	flag.IntVar(&o.parallel, "parallel", 2, "run so many processes at once")
	flag.StringVar(&o.keep, "keep", "", "keep binaries and times in this folder, for the next run on the same source")
	flag.Parse()
	o.in, o.packages = strings.Split(*in, ","), flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if len(o.packages) == 0 {
		return fmt.Errorf("name the packages whose tests are to run")
	}
	doubted, err := regexp.Compile(o.doubt)
	if err != nil {
		return err
	}
	if o.keep == "" {
		if o.keep, err = os.MkdirTemp("", "mutate"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(o.keep) }()
	}
	if o.keep, err = filepath.Abs(o.keep); err != nil {
		return err
	}
	all, err := writeOverlay(o.root, o.keep, o.in)
	if err != nil {
		return err
	}
	l := &lab{options: o, mutants: all}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	for _, t := range l.tests {
		t.doubted = o.doubt != "" && doubted.MatchString(t.String())
	}
	l.tryAll(ctx, l.draw())
	return ctx.Err()
}

// draw returns some of the mutants that a test reaches, in random order.
func (l *lab) draw() []*mutant {
	var reached []*mutant
	for i := range l.mutants {
		if len(l.mutants[i].reach) > 0 {
			reached = append(reached, &l.mutants[i])
		}
	}
	fmt.Fprintf(l.out, "# seed %d: %d mutants, of which tests reach %d\n", l.seed, len(l.mutants)-1, len(reached))
	rand.New(rand.NewPCG(l.seed, 0)).Shuffle(len(reached), func(i, j int) {
		reached[i], reached[j] = reached[j], reached[i]
	})
	if l.count > 0 && l.count < len(reached) {
		reached = reached[:l.count]
	}
	return reached
}

// tryAll writes a line per mutant, and how many were killed.
func (l *lab) tryAll(ctx context.Context, mutants []*mutant) {
	var lock sync.Mutex
	counts := map[string]int{}
	each(l.parallel, mutants, func(m *mutant) {
		began := time.Now()
		verdict, killers := l.try(ctx, m)
		if ctx.Err() != nil {
			return
		}
		lock.Lock()
		defer lock.Unlock()
		counts[verdict]++
		fmt.Fprintf(l.out, "%d\t%s:%d\t%s\t%s\t%.1f s\t%s\n",
			m.id, m.file, m.line, m.change, verdict, time.Since(began).Seconds(), strings.Join(killers, " "))
	})
	fmt.Fprintf(l.out, "# killed %d, killed by doubted tests alone %d, survived %d\n",
		counts["killed"], counts["doubted"], counts["survived"])
}

// each calls do for all of list, for n at a time.
func each[T any](n int, list []T, do func(T)) {
	var done sync.WaitGroup
	slots := make(chan struct{}, n)
	for _, one := range list {
		slots <- struct{}{}
		done.Go(func() {
			do(one)
			<-slots
		})
	}
	done.Wait()
}
