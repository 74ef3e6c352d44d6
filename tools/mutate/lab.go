package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// test is a test of the top level.
type test struct {
	Package, Name string
	Seconds       float64
	Reach         []int // ids of mutants
	doubted       bool
}

func (t *test) String() string { return t.Package + "." + t.Name }

// lab has the binaries, and what each test reaches.
type lab struct {
	options
	mutants []mutant
	tests   []*test
}

func (l *lab) binary(name string) string {
	return filepath.Join(l.keep, strings.ReplaceAll(strings.TrimPrefix(name, "./"), "/", "_")+".test")
}

// prepare builds the packages and runs each test alone, or remembers what that showed.
func (l *lab) prepare(ctx context.Context) error {
	memory := filepath.Join(l.keep, "tests.json")
	text, err := os.ReadFile(memory)
	if err != nil {
		for _, name := range l.packages {
			if err := l.build(ctx, name); err != nil {
				return err
			}
		}
		each(l.parallel, l.tests, func(t *test) { l.measure(ctx, t) })
		l.tests = slices.DeleteFunc(l.tests, func(t *test) bool { return t.Seconds == 0 })
		slices.SortStableFunc(l.tests, func(a, b *test) int { return cmp.Compare(a.Seconds, b.Seconds) })
		text, err = json.Marshal(l.tests)
		if err = cmp.Or(ctx.Err(), err); err == nil { // else the next run would remember a part
			err = os.WriteFile(memory, text, 0o600)
		}
		if err != nil {
			return err
		}
	} else if err := json.Unmarshal(text, &l.tests); err != nil {
		return err
	}
	for _, t := range l.tests {
		for _, id := range t.Reach {
			l.mutants[id].reach = append(l.mutants[id].reach, t)
		}
	}
	return nil
}

func (l *lab) build(ctx context.Context, name string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(l.keep, "overlay.json"),
		"-o", l.binary(name), name)
	cmd.Dir = l.root
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output)
	}
	list, _, err := l.start(ctx, name, 0, time.Minute, "", "-test.list", ".")
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "Test") || strings.HasPrefix(line, "Fuzz") {
			l.tests = append(l.tests, &test{Package: name, Name: strings.TrimSpace(line)})
		}
	}
	return err
}

// measure leaves the Seconds of a test 0 that fails or is skipped: it judges no mutant.
func (l *lab) measure(ctx context.Context, t *test) {
	file := l.binary(t.Package) + "." + t.Name
	defer func() { _ = os.Remove(file) }()
	if os.WriteFile(file, make([]byte, len(l.mutants)), 0o600) != nil {
		return
	}
	began := time.Now()
	output, ok, err := l.start(ctx, t.Package, 0, 5*time.Minute, file, "-test.v", "-test.run", "^"+t.Name+"$")
	if !ok || err != nil || strings.Contains(output, "\n--- SKIP: "+t.Name) {
		fmt.Fprintf(l.out, "# without a mutant %v does not pass\n", t)
	} else {
		t.Seconds = time.Since(began).Seconds()
	}
	reach, _ := os.ReadFile(file)
	for id, reached := range reach {
		if reached != 0 {
			t.Reach = append(t.Reach, id)
		}
	}
}

// start runs a binary, and says whether it has passed. With it end all processes that it has started.
func (l *lab) start(
	ctx context.Context, name string, mutant int, limit time.Duration, reach string, args ...string,
) (output string, ok bool, err error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := exec.CommandContext(ctx, l.binary(name), args...)
	cmd.Dir = filepath.Join(l.root, name)
	cmd.Env = append(os.Environ(), fmt.Sprint("FENCELOCK_MUTANT=", mutant), "FENCELOCK_MUTANTS_REACHED="+reach)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		return b.String(), false, nil
	}
	return b.String(), err == nil, err
}

// try runs the tests that reach a mutant, the shortest first: doubted ones only if all else pass.
func (l *lab) try(ctx context.Context, m *mutant) (verdict string, killers []string) {
	for _, doubted := range []bool{false, true} {
		for left := m.reach; len(left) > 0 && ctx.Err() == nil && (l.until == 0 || len(killers) < l.until); {
			var some, later []*test // some run in one process
			seconds := 0.0
			for _, t := range left {
				switch {
				case t.doubted != doubted:
				case some == nil || t.Package == some[0].Package && seconds+t.Seconds < 4:
					some, seconds = append(some, t), seconds+t.Seconds
				default:
					later = append(later, t)
				}
			}
			if left = later; some != nil {
				killers = append(killers, l.attack(ctx, m, some, seconds)...)
			}
		}
		if len(killers) > 0 {
			return map[bool]string{false: "killed", true: "doubted"}[doubted], killers
		}
	}
	return "survived", nil
}

var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: |	)(Test\w+|Fuzz\w+)\b.*\(\d`)

// attack runs some tests in one process, and returns those that fail. If it is not clear which, that is the process.
func (l *lab) attack(ctx context.Context, m *mutant, some []*test, seconds float64) (killers []string) {
	var names []string
	for _, t := range some {
		names = append(names, t.Name)
	}
	name, limit := some[0].Package, time.Minute+time.Duration(10*seconds*float64(time.Second))
	run := func(mutant int) (output string, ok bool) {
		output, ok, _ = l.start(ctx, name, mutant, limit+5*time.Second, "", fmt.Sprint("-test.failfast=", l.until == 1),
			"-test.timeout", limit.String(), "-test.run", "^("+strings.Join(names, "|")+")$")
		return output, ok
	}
	output, ok := run(m.id)
	if ok || ctx.Err() != nil {
		return nil
	}
	if _, ok := run(0); !ok { // the machine is busy
		return nil
	}
	for _, match := range failure.FindAllStringSubmatch(output, -1) {
		killers = append(killers, name+"."+match[1])
	}
	if len(killers) == 0 {
		killers = []string{fmt.Sprintf("%s.(one of %d)", name, len(some))}
	}
	return killers
}
