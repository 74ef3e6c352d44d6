package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/test/scratch"
)

type config struct {
	run             string
	list, only      bool
	machines, chaos bool
	seed            uint64
	count           int
	timeout, within time.Duration
}

func main() {
	var cfg config
	flag.StringVar(&cfg.run, "run", "", "run the mutants whose name matches this pattern; all if empty")
	flag.BoolVar(&cfg.list, "list", false, "name the mutants, and run none")
	flag.BoolVar(&cfg.only, "only", false, "run only the command that a mutant names, also if it notices nothing")
	flag.DurationVar(&cfg.timeout, "timeout", 5*time.Minute, "the longest time of one package's tests")
	flag.BoolVar(&cfg.machines, "machines", false, "have the machines find the mutants, which name one that does")
	flag.BoolVar(&cfg.chaos, "chaos", false, "draw mutants, and have chaos find them")
	flag.Uint64Var(&cfg.seed, "seed", 0, "of -chaos; 0 draws one")
	flag.IntVar(&cfg.count, "count", 3, "how many mutants -chaos draws")
	flag.DurationVar(&cfg.within, "within", 5*time.Minute, "how long chaos may take to find a mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	chosen, err := regexp.Compile(cfg.run)
	if err != nil {
		return err
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	all, err := load(root)
	if err != nil {
		return err
	}
	if cfg.seed == 0 {
		cfg.seed = rand.Uint64()
	}
	var inChaos map[string]bool
	if cfg.chaos {
		if inChaos, err = foldersOfChaos(root); err != nil {
			return err
		}
	}
	tried := cfg.choose(all, chosen, inChaos)
	if cfg.chaos {
		fmt.Fprintf(out, "drawn with -seed %d\n", cfg.seed)
	}
	if cfg.list {
		for _, m := range tried {
			fmt.Fprintf(out, "%s: %s\n", m.name, m.breaks)
		}
		return nil
	}
	return tryAll(ctx, root, cfg, tried, out)
}

// foldersOfChaos returns the folders of the packages that run in a run of chaos, below the root.
func foldersOfChaos(root string) (map[string]bool, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.Dir}}", "./lab/chaos")
	cmd.Dir = root
	output, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	folders := map[string]bool{}
	for dir := range strings.Lines(string(output)) {
		if name, err := filepath.Rel(root, strings.TrimSpace(dir)); err == nil {
			folders[filepath.ToSlash(name)] = true
		}
	}
	return folders, nil
}

// choose returns the mutants that are to be tried: for chaos those of its packages that no reason keeps from it.
func (cfg *config) choose(all []mutant, chosen *regexp.Regexp, inChaos map[string]bool) []mutant {
	tried := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		elsewhere := func(e edit) bool { return !inChaos[path.Dir(e.path)] }
		return !chosen.MatchString(m.name) || cfg.machines && m.finder.text == "" ||
			cfg.chaos && (m.unseen != "" || slices.ContainsFunc(m.edits, elsewhere))
	})
	if cfg.chaos {
		draw := rand.New(rand.NewPCG(cfg.seed, 0))
		draw.Shuffle(len(tried), func(i, j int) { tried[i], tried[j] = tried[j], tried[i] })
		tried = tried[:min(cfg.count, len(tried))]
	}
	return tried
}

// findRoot returns the folder of go.work.
func findRoot() (string, error) {
	work, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(string(work)) == "" {
		return "", errors.New("not inside the workspace of the repository")
	}
	return filepath.Dir(strings.TrimSpace(string(work))), nil
}

// tryAll tries the chosen mutants. The error names the survivors.
func tryAll(ctx context.Context, root string, cfg config, tried []mutant, out io.Writer) error {
	temporary, err := scratch.New("mutants")
	if err != nil {
		return err
	}
	defer func() { _ = temporary.Close() }()
	l := &lab{
		root: root, scratch: temporary.Path(), timeout: cfg.timeout, only: cfg.only,
		built: map[string]string{}, passed: map[string]bool{},
	}
	try := l.try
	switch {
	case cfg.machines:
		try = l.tryMachine
	case cfg.chaos:
		h := hunt{lab: l, seed: cfg.seed, within: cfg.within, out: out}
		try = h.try
	}
	var holes []error
	for _, m := range tried {
		r, err := try(ctx, m)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			fmt.Fprintf(out, "SURVIVED %s: %v\n", m.name, err)
			holes = append(holes, fmt.Errorf("%s survived", m.name))
		default:
			fmt.Fprintf(out, "KILLED   %s by %s in %.1f s: %s\n", m.name, r.killer, r.after.Seconds(), r.command.text)
		}
	}
	return errors.Join(holes...)
}

// tryMachine runs the machine that finds a mutant although no test of it knows the bug.
func (l *lab) tryMachine(ctx context.Context, m mutant) (result, error) {
	if err := l.requirePassing(ctx, m.finder); err != nil {
		return result{}, err
	}
	files, err := m.apply(l.root)
	if err != nil {
		return result{}, err
	}
	r, err := l.run(ctx, m.finder, files)
	if err == nil && r.killer == "" {
		err = fmt.Errorf("%s finds nothing", m.finder.text)
	}
	return r, err
}

// try runs the command of a mutant, and if that does not notice the bug, all tests of the packages concerned.
func (l *lab) try(ctx context.Context, m mutant) (result, error) {
	if err := l.requirePassing(ctx, m.killer); err != nil {
		return result{}, err
	}
	files, err := m.apply(l.root)
	if err != nil {
		return result{}, err
	}
	r, err := l.run(ctx, m.killer, files)
	if err != nil || r.killer != "" {
		return r, err
	}
	if l.only {
		return r, fmt.Errorf("%s passes", m.killer.text)
	}
	concerned := map[string]bool{}
	if m.killer.tests() {
		concerned[m.killer.folder] = true
	}
	for _, e := range m.edits {
		concerned[path.Dir(e.path)] = true
	}
	for folder := range concerned {
		other, err := l.run(ctx, suite(folder), files)
		if err != nil {
			return r, err
		}
		if other.killer != "" {
			return r, fmt.Errorf("%s passes; %s fails in ./%s after %.1f s", m.killer.text, other.killer, folder,
				other.after.Seconds())
		}
	}
	return r, errors.New("no test notices it")
}
