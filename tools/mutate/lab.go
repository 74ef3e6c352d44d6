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

// prepare builds the packages, and runs each test alone.
func (l *lab) prepare(ctx context.Context) error {
	memory := filepath.Join(l.keep, "tests.json")
	if text, err := os.ReadFile(memory); err == nil {
		if err := json.Unmarshal(text, &l.tests); err != nil {
			return err
		}
	} else {
		for _, name := range l.packages {
			if err := l.build(ctx, name); err != nil {
				return err
			}
		}
		each(l.parallel, l.tests, func(t *test) { l.measure(ctx, t) })
		if err := ctx.Err(); err != nil {
			return err
		}
		text, err := json.Marshal(l.tests)
		if err != nil {
			return err
		}
		if err := os.WriteFile(memory, text, 0o600); err != nil {
			return err
		}
	}
	l.tests = slices.DeleteFunc(l.tests, func(t *test) bool { return t.Seconds == 0 })
	slices.SortStableFunc(l.tests, func(a, b *test) int { return cmp.Compare(a.Seconds, b.Seconds) })
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
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output)
	}
	output, _, err := l.start(ctx, name, 0, time.Minute, "", "-test.list", ".")
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, output)
	}
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "Test") || strings.HasPrefix(line, "Fuzz") {
			l.tests = append(l.tests, &test{Package: name, Name: strings.TrimSpace(line)})
		}
	}
	return nil
}

// measure leaves the Seconds of a test 0 that fails or is skipped: it judges no mutant.
func (l *lab) measure(ctx context.Context, t *test) {
	file, err := os.CreateTemp(l.keep, "reach")
	if err != nil {
		return
	}
	defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	if file.Truncate(int64(len(l.mutants))) != nil {
		return
	}
	began := time.Now()
	output, ok, err := l.start(ctx, t.Package, 0, 5*time.Minute, file.Name(), "-test.v", "-test.run", "^"+t.Name+"$")
	if !ok || err != nil || strings.Contains(output, "\n--- SKIP: "+t.Name) {
		fmt.Fprintf(l.out, "# without a mutant %v does not pass\n", t)
	} else {
		t.Seconds = time.Since(began).Seconds()
	}
	reach, _ := os.ReadFile(file.Name())
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

// batch is how many seconds of tests run in one process.
const batch = 4

// try runs the tests that reach a mutant: doubted ones only if all else pass.
func (l *lab) try(ctx context.Context, m *mutant) (verdict string, killers []string) {
	for _, doubted := range []bool{false, true} {
		left := map[string][]*test{} // by package
		for _, t := range m.reach {
			if t.doubted == doubted {
				left[t.Package] = append(left[t.Package], t)
			}
		}
		for len(left) > 0 && ctx.Err() == nil {
			name := cheapest(left)
			some := take(left, name)
			killers = append(killers, l.attack(ctx, m, name, some)...)
			if l.until > 0 && len(killers) >= l.until {
				break
			}
		}
		switch {
		case len(killers) > 0 && doubted:
			return "doubted", killers
		case len(killers) > 0:
			return "killed", killers
		}
	}
	return "survived", nil
}

func cheapest(left map[string][]*test) (name string) {
	for other, tests := range left {
		if name == "" || tests[0].Seconds < left[name][0].Seconds {
			name = other
		}
	}
	return name
}

// take removes the first tests of a package.
func take(left map[string][]*test, name string) []*test {
	n, seconds := 0, 0.0
	for n < len(left[name]) && (n == 0 || seconds+left[name][n].Seconds < batch) {
		seconds += left[name][n].Seconds
		n++
	}
	some := left[name][:n]
	if left[name] = left[name][n:]; len(left[name]) == 0 {
		delete(left, name)
	}
	return some
}

var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: |	)(Test\w+|Fuzz\w+)\b.*\(\d`)

// attack runs some tests in one process, and returns those that fail. If it is not clear which, that is the process.
func (l *lab) attack(ctx context.Context, m *mutant, name string, some []*test) (killers []string) {
	var names []string
	seconds := 0.0
	for _, t := range some {
		names, seconds = append(names, t.Name), seconds+t.Seconds
	}
	stop := fmt.Sprint("-test.failfast=", l.until == 1)
	limit := time.Minute + time.Duration(10*seconds*float64(time.Second))
	output, ok, _ := l.start(ctx, name, m.id, limit+5*time.Second, "", stop, "-test.timeout", limit.String(),
		"-test.run", "^("+strings.Join(names, "|")+")$")
	if ok || ctx.Err() != nil {
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
