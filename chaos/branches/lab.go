package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lab runs tests whose scripts log their branches.
type lab struct {
	root, scratch string
	out           io.Writer
}

// reached is which test was the first to reach each branch and each reply code, "" for none.
type reached struct {
	branches []string
	codes    map[string]string // by "script: code"
	order    []string          // of the codes
}

// A test that looks at the scripts' own text fails with calls in it, and what runs in another Lua logs nothing.
const skipped = "^TestSourcesAreAssembled$|Lua54"

const (
	fuzzFolder    = "internal/test/scriptfuzz"
	corpusPattern = "^TestCorpus$"
)

func (l *lab) run(ctx context.Context, files map[string]string, branches int) (reached, error) {
	all := reached{branches: make([]string, branches), codes: map[string]string{}}
	overlay, err := l.overlay(files)
	if err != nil {
		return all, err
	}
	if err := l.wrapServer(); err != nil {
		return all, err
	}
	fuzz, err := l.build(ctx, overlay, fuzzFolder)
	if err != nil {
		return all, err
	}
	corpus, err := filepath.Glob(filepath.Join(l.root, fuzzFolder, "testdata/corpus/*.jsonl"))
	if err != nil {
		return all, err
	}
	for _, path := range corpus {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		pattern := "^TestCorpus$/^redis-server$/^" + name + "$"
		if err := l.try(ctx, fuzz, fuzzFolder, pattern, "corpus "+name, &all); err != nil {
			return all, err
		}
	}
	for _, kind := range []string{"plain", "back", "lost", "many"} {
		for seed := 1; seed <= 20; seed++ {
			name := fmt.Sprintf("seed %d of kind %s", seed, kind)
			args := []string{"-server=redis-server", "-kind=" + kind, fmt.Sprint("-from=", seed), "-seeds=1"}
			if err := l.try(ctx, fuzz, fuzzFolder, "^TestRandomSequences$", name, &all, args...); err != nil {
				return all, err
			}
		}
	}
	program, err := l.build(ctx, overlay, folder)
	if err != nil {
		return all, err
	}
	names, err := exec.CommandContext(ctx, program, "-test.list", "^Test").Output()
	if err != nil {
		return all, err
	}
	for _, name := range strings.Fields(string(names)) {
		switch {
		case !slices.Contains(all.branches, ""):
			return all, nil
		case regexp.MustCompile(skipped).MatchString(name), name == "TestMain":
			continue
		}
		if err := l.try(ctx, program, folder, "^"+name+"$", name, &all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// overlay writes the scripts and the file that has the go command read them.
func (l *lab) overlay(files map[string]string) (string, error) {
	replaced := map[string]string{}
	for path, text := range files {
		copied := filepath.Join(l.scratch, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replaced[filepath.Join(l.root, path)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(l.scratch, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

func (l *lab) logs() string { return filepath.Join(l.scratch, "logs") }

func (l *lab) bin() string { return filepath.Join(l.scratch, "bin") }

// wrapServer makes a redis-server that keeps its log.
func (l *lab) wrapServer() error {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	for _, folder := range []string{l.logs(), l.bin()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" --logfile %s/$$\n", server, l.logs())
	return os.WriteFile(filepath.Join(l.bin(), "redis-server"), []byte(script), 0o755)
}

func (l *lab) build(ctx context.Context, overlay, folder string) (string, error) {
	program := filepath.Join(l.scratch, strings.ReplaceAll(folder, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", program, "./"+folder)
	cmd.Dir = l.root
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return program, nil
}

// try runs a test and notes what it is the first to reach. A busy machine fails a test now and then. What fails twice
// counts for nothing: another test may reach the same.
func (l *lab) try(
	ctx context.Context, program, folder, pattern, name string, all *reached, args ...string,
) error {
	output, err := l.runTest(ctx, program, folder, pattern, args)
	if err != nil && ctx.Err() == nil {
		if _, err := l.readLogs(); err != nil {
			return err
		}
		output, err = l.runTest(ctx, program, folder, pattern, args)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	branches, unread := l.readLogs()
	if unread != nil {
		return unread
	}
	if err != nil {
		fmt.Fprintf(l.out, "%s fails: %v\n", name, err)
		return nil
	}
	news := 0
	for number := range branches {
		if all.branches[number] == "" {
			all.branches[number] = name
			news++
		}
	}
	for _, code := range codesIn(output) {
		if all.codes[code] == "" {
			all.codes[code] = name
			all.order = append(all.order, code)
			news++
		}
	}
	if news > 0 {
		fmt.Fprintf(l.out, "%s: %d\n", name, news)
	}
	return nil
}

func (l *lab) runTest(ctx context.Context, program, folder, pattern string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"-test.v", "-test.run", pattern}, args...)...)
	cmd.Dir = filepath.Join(l.root, folder)
	cmd.Env = append(os.Environ(), "PATH="+l.bin()+":"+os.Getenv("PATH"), "FENCELOCK_VALKEY=none", "CI=true")
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// readLogs returns the branches in the servers' logs, and removes these.
func (l *lab) readLogs() (map[int]bool, error) {
	paths, err := filepath.Glob(filepath.Join(l.logs(), "*"))
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if _, number, is := strings.Cut(lines.Text(), mark); is {
				n, err := strconv.Atoi(number)
				if err != nil {
					return nil, err
				}
				found[n] = true
			}
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// coverage is a row of the table of scriptfuzz.
var coverage = regexp.MustCompile(
	`(?m)^ *(acquire|join|renew|refresh|release|raise|yield|regain|marker|inspect|message) +(\S.*)$`)

// codesIn returns the reply codes in the table of scriptfuzz.
func codesIn(output string) (codes []string) {
	for _, row := range coverage.FindAllStringSubmatch(output, -1) {
		for entry := range strings.SplitSeq(row[2], ", ") {
			code, _, _ := strings.Cut(entry, ":")
			codes = append(codes, row[1]+": "+code)
		}
	}
	return codes
}
