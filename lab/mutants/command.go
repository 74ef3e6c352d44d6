package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// command notices a bug: tests of a package, a run of chaos, or a search for a schedule.
type command struct {
	text    string   // as in a shell, at the root of the repository
	folder  string   // of the package
	module  string   // the folder in which a program runs
	pattern string   // of the tests, or of the scenarios
	args    []string // of the built program
	noisy   bool     // it is built with scheduling noise
}

const (
	// chaos begins a command that looks for broken promises on real servers.
	chaos = "go run -C lab ./chaos "
	// explore begins a command that looks for a schedule of goroutines.
	explore = "go run -C lab/tools ./noise -explore "

	noiseFolder = "lab/tools/noise"
)

var testCommand = regexp.MustCompile(`^go test \./(\S+) -run '([^']+)'((?: -\S+)*)$`)

func parseCommand(text string) (command, error) {
	if flags, is := strings.CutPrefix(text, chaos); is {
		return command{text: text, folder: "lab/chaos", module: "lab", args: strings.Fields(flags)}, nil
	}
	if pattern, is := strings.CutPrefix(text, explore); is {
		pattern = strings.Trim(pattern, "'")
		args := []string{"-explore", pattern}
		return command{text: text, folder: noiseFolder, module: "lab/tools", pattern: pattern, args: args}, nil
	}
	parts := testCommand.FindStringSubmatch(text)
	if parts == nil {
		return command{}, fmt.Errorf("no such command is known: %s", text)
	}
	c := command{text: text, folder: parts[1], module: parts[1], pattern: parts[2]}
	c.args = append([]string{"-test.run", parts[2]}, strings.Fields(parts[3])...)
	return c, nil
}

// suite returns the command that runs all tests of a package. It leaves out the test that compares the scripts with
// their files on disk, which have no bug.
func suite(folder string) command {
	return command{
		text: "go test ./" + folder, folder: folder, module: folder,
		args: []string{"-test.skip", "^TestSourcesAreAssembled$"},
	}
}

func (c command) tests() bool    { return strings.HasPrefix(c.text, "go test ") }
func (c command) explores() bool { return strings.HasPrefix(c.text, explore) }

// lab builds and runs commands on copies of the sources.
type lab struct {
	root, scratch string
	timeout       time.Duration
	only          bool              // run only the named command of a mutant
	built         map[string]string // programs that run again, by their sources
	passed        map[string]bool   // commands that pass on the sources as they are
}

// Programs read the Lua scripts when they run, so that the mutants of all scripts share one build.
const (
	scriptsFolder   = "scripts"
	scriptsVariable = "FENCELOCK_MUTANT_SCRIPTS"
)

var readsScripts = mutant{edits: []edit{
	{"scripts/embed.go", `"embed"`, `"io/fs"; "os"`},
	{"scripts/embed.go", "//go:embed *.lua", ""},
	{
		"scripts/embed.go", "var files embed.FS",
		`var files = os.DirFS(os.Getenv("` + scriptsVariable + `")).(fs.ReadFileFS)`,
	},
}}

// result is the outcome of a command.
type result struct {
	killer  string // what failed, "" if all passed
	command command
	after   time.Duration
	output  string
}

var errBuild = errors.New("the mutated copy does not compile")

// build compiles the program of a command with the changed files, and returns its path.
func (l *lab) build(ctx context.Context, c command, files map[string]string) (program string, err error) {
	key := fmt.Sprint(c.folder, c.noisy, files)
	if program, done := l.built[key]; done {
		return program, nil
	}
	folder, err := os.MkdirTemp(l.scratch, "build")
	if err != nil {
		return "", err
	}
	all, err := readsScripts.apply(l.root)
	if err != nil {
		return "", err
	}
	maps.Copy(all, files)
	overlay, err := l.overlay(folder, all)
	if err == nil && c.noisy {
		overlay, err = l.addNoise(ctx, folder, overlay)
	}
	if err != nil {
		return "", err
	}
	program = filepath.Join(folder, "program")
	// Without symbols for a debugger the program is linked in half the time.
	args := []string{"build", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./" + c.folder}
	if c.tests() {
		args = append([]string{"test", "-c"}, args[1:]...)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = l.root
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errBuild, err, output)
	}
	if len(files) == 0 || c.noisy { // it runs again
		l.built[key] = program
	}
	return program, nil
}

// addNoise returns an overlay with scheduling noise around the operations of the changed sources.
func (l *lab) addNoise(ctx context.Context, folder, changes string) (path string, err error) {
	noise, err := l.build(ctx, command{folder: noiseFolder}, nil)
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, "noise")
	cmd := exec.CommandContext(ctx, noise, "-overlay", changes, folder)
	cmd.Dir = filepath.Join(l.root, "lab", "tools")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errBuild, err, output)
	}
	return filepath.Join(folder, "overlay.json"), nil
}

// changes writes an overlay of the changed files to a folder of its own.
func (l *lab) changes(files map[string]string) (path string, err error) {
	folder, err := os.MkdirTemp(l.scratch, "changes")
	if err != nil {
		return "", err
	}
	return l.overlay(folder, files)
}

// overlay writes the changed files to a folder, and the file that has the go command read them.
func (l *lab) overlay(folder string, files map[string]string) (path string, err error) {
	replaced := map[string]string{}
	for path, text := range files {
		copied := filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(l.root, path)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path = filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// scripts returns a folder with all scripts, changed or not.
func (l *lab) scripts(files map[string]string) (string, error) {
	folder, err := os.MkdirTemp(l.scratch, "scripts")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(l.root, scriptsFolder))); err != nil {
		return "", err
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(path)), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// run runs a command on the sources with the changed files.
func (l *lab) run(ctx context.Context, c command, files map[string]string) (result, error) {
	compiled, read := map[string]string{}, map[string]string{}
	for path, text := range files {
		if filepath.Dir(path) == scriptsFolder && filepath.Ext(path) == ".lua" {
			read[path] = text
		} else {
			compiled[path] = text
		}
	}
	args := c.args
	if c.tests() {
		args = append([]string{"-test.v", "-test.failfast", "-test.timeout", l.timeout.String()}, args...)
	}
	if c.explores() { // it builds what it runs
		overlay, err := l.changes(compiled)
		if err != nil {
			return result{}, err
		}
		defer func() { _ = os.RemoveAll(filepath.Dir(overlay)) }()
		args, compiled = append(args, "-overlay", overlay), nil
	}
	program, err := l.build(ctx, c, compiled)
	if err != nil {
		return result{}, err
	}
	if len(compiled) > 0 && !c.noisy {
		defer func() { _ = os.RemoveAll(filepath.Dir(program)) }()
	}
	scripts, err := l.scripts(read)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(scripts) }()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(l.root, c.module)
	cmd.Env = append(os.Environ(), scriptsVariable+"="+scripts, "FENCELOCK_TESTS=all")
	if c.noisy {
		cmd.Env = append(cmd.Env, "FENCELOCK_NOISE=1")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	began := time.Now()
	output, err := cmd.CombinedOutput()
	r := result{command: c, after: time.Since(began), output: string(output)}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil {
		r.killer = failureIn(r.output)
	} else if strings.Contains(r.output, "testing: warning: no tests to run") {
		return r, fmt.Errorf("no test matches: %s", c.text)
	}
	return r, nil
}

// requirePassing returns an error if a command fails on the unchanged sources: such a failure proves nothing.
func (l *lab) requirePassing(ctx context.Context, c command) error {
	if l.passed[c.text] {
		return nil
	}
	r, err := l.run(ctx, c, nil)
	switch {
	case err != nil:
		return err
	case r.killer != "":
		return fmt.Errorf("%s fails without any bug: %s\n%s", c.text, r.killer, tail(r.output))
	case strings.Contains(r.output, "--- SKIP: ") && !strings.Contains(r.output, "--- PASS: "):
		return fmt.Errorf("%s is skipped here\n%s", c.text, tail(r.output))
	}
	l.passed[c.text] = true
	return nil
}

var (
	schedule = regexp.MustCompile(`(?m)^\s*explore\.go:\d+: (schedule \d+: .+)$`)
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	violated = regexp.MustCompile(`(?m)^VIOLATION (\w+)`)
	started  = regexp.MustCompile(`(?m)^=== RUN   (\S+)`)
	exited   = regexp.MustCompile(`(?m)^chaos: (.+)$`)
)

// failureIn names what failed in the output of a program that failed.
func failureIn(output string) string {
	if match := schedule.FindStringSubmatch(output); match != nil {
		return match[1]
	}
	if match := failed.FindStringSubmatch(output); match != nil {
		return match[1]
	}
	if match := violated.FindStringSubmatch(output); match != nil {
		return "violation of " + match[1]
	}
	if all := started.FindAllStringSubmatch(output, -1); all != nil {
		return "a panic in " + all[len(all)-1][1]
	}
	if match := exited.FindStringSubmatch(output); match != nil {
		return "an error: " + match[1]
	}
	return "its exit status"
}

// tail returns the last lines of an output.
func tail(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
