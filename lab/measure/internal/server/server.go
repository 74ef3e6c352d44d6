// Package server reports what an operation costs a server: processor time, bytes, commands, instructions. The servers
// are those of package testredis, which fail the run if they do not answer.
package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// CPU returns the processor time that the process has used so far, of user and system together.
func CPU(s *testredis.Server) (sum time.Duration) {
	info := s.Info("cpu")
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(info[field], 64)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// Used returns the bytes that the server has allocated: the keys, the tables that lead to them, and everything else it
// needs.
func Used(s *testredis.Server) int {
	used, _ := strconv.Atoi(s.Info("memory")["used_memory"])
	return used
}

// pid returns the process id.
func pid(s *testredis.Server) int {
	id, _ := strconv.Atoi(s.Info("server")["process_id"])
	return id
}

// The programs that count instructions, of the Debian package valgrind.
const (
	valgrind = "valgrind"
	monitor  = "vgdb" // talks to a program that runs under valgrind
)

// Counted is a server under a count of its instructions.
type Counted struct {
	*testredis.Server
	dir string
}

// StartCounted starts one. It is some fifty times slower than a plain server.
func StartCounted(t testing.TB, binary string) *Counted {
	t.Helper()
	for _, program := range []string{valgrind, monitor} {
		testredis.Program(t, program, valgrind)
	}
	path, err := exec.LookPath(binary) // valgrind does not search PATH
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "counted")
	text := fmt.Sprintf("#!/bin/sh\nexec %s --tool=callgrind --vgdb-prefix=%s --callgrind-out-file=%s %s \"$@\"\n",
		valgrind, pipes(dir), dump(dir), path)
	if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Counted{testredis.StartBinary(t, program), dir}
}

func pipes(dir string) string { return filepath.Join(dir, "vgdb") }

func dump(dir string) string { return filepath.Join(dir, "callgrind.out") }

// Instructions returns the number of instructions that the program has run since the last call, without the kernel's.
func (s *Counted) Instructions() (int64, error) {
	told, err := exec.Command(monitor,
		"--vgdb-prefix="+pipes(s.dir), "--pid="+strconv.Itoa(pid(s.Server)), "dump").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", monitor, err, bytes.TrimSpace(told))
	}
	dumps, err := filepath.Glob(dump(s.dir) + ".*") // numbered; the file without a number is for the end
	if err != nil || len(dumps) != 1 {
		return 0, errors.Join(err, fmt.Errorf("%d dumps of callgrind where there should be one", len(dumps)))
	}
	text, err := os.ReadFile(dumps[0])
	if err != nil {
		return 0, err
	}
	_, sum, found := strings.Cut(string(text), "\ntotals:")
	if !found {
		return 0, errors.New("a dump of callgrind without its totals")
	}
	sum, _, _ = strings.Cut(sum, "\n")
	total, err := strconv.ParseInt(strings.TrimSpace(sum), 10, 64)
	return total, errors.Join(err, os.Remove(dumps[0]))
}
