package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/scratch"
)

type config struct {
	run, table string
	list, only bool
	timeout    time.Duration
}

func main() {
	var cfg config
	flag.StringVar(&cfg.run, "run", "", "run the mutants whose name matches this pattern; all if empty")
	flag.BoolVar(&cfg.list, "list", false, "name the mutants, and run none")
	flag.BoolVar(&cfg.only, "only", false, "run only the command that a mutant names, also if it notices nothing")
	flag.StringVar(&cfg.table, "table", "", "write the rows of killed mutants to this page, which keeps its other rows")
	flag.DurationVar(&cfg.timeout, "timeout", 5*time.Minute, "the longest time of one package's tests")
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
	if cfg.list {
		for _, m := range all {
			if chosen.MatchString(m.name) {
				fmt.Fprintf(out, "%s: %s\n", m.name, m.breaks)
			}
		}
		return nil
	}
	return tryAll(ctx, root, cfg, chosen, all, out)
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
func tryAll(
	ctx context.Context, root string, cfg config, chosen *regexp.Regexp, all []mutant, out io.Writer,
) error {
	temporary, err := scratch.New("mutants")
	if err != nil {
		return err
	}
	defer func() { _ = temporary.Close() }()
	l := &lab{
		root: root, scratch: temporary.Path(), timeout: cfg.timeout, only: cfg.only,
		built: map[string]string{}, passed: map[string]bool{},
	}
	var holes []error
	for _, m := range all {
		if !chosen.MatchString(m.name) {
			continue
		}
		r, err := l.try(ctx, m)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			fmt.Fprintf(out, "SURVIVED %s: %v\n", m.name, err)
			holes = append(holes, fmt.Errorf("%s survived", m.name))
		default:
			fmt.Fprintf(out, "KILLED   %s by %s in %.1f s\n", m.name, r.killer, r.after.Seconds())
			if cfg.table != "" {
				err = update(cfg.table, all, row{m, r})
			}
			if err != nil {
				return err
			}
		}
	}
	return errors.Join(holes...)
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
