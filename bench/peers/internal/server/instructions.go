package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The programs that count instructions, of the Debian package valgrind.
const (
	valgrind = "valgrind"
	monitor  = "vgdb" // talks to a program that runs under valgrind
)

// CountsInstructions reports whether StartCounted has the programs that it needs.
func CountsInstructions() bool {
	for _, program := range []string{valgrind, monitor} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return true
}

// StartCounted runs a server under a count of its instructions. It is some fifty times slower than a plain server.
func StartCounted(ctx context.Context, binary string) (*Server, error) {
	if !CountsInstructions() {
		return nil, errors.New("no valgrind on PATH: install the Debian package valgrind")
	}
	path, err := exec.LookPath(binary) // valgrind does not search PATH
	if err != nil {
		return nil, err
	}
	return start(ctx, path, func(dir string) []string {
		return []string{valgrind, "--tool=callgrind", "--vgdb-prefix=" + pipes(dir), "--callgrind-out-file=" + dump(dir)}
	})
}

func pipes(dir string) string { return filepath.Join(dir, "vgdb") }

func dump(dir string) string { return filepath.Join(dir, "callgrind.out") }

// Instructions returns the number of instructions that the program has run since the last call, without the kernel's.
// The server is one of StartCounted.
func (s *Server) Instructions(ctx context.Context) (int64, error) {
	told, err := exec.CommandContext(ctx, monitor,
		"--vgdb-prefix="+pipes(s.dir), "--pid="+strconv.Itoa(s.PID()), "dump").CombinedOutput()
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
	total, err := totals(string(text))
	return total, errors.Join(err, os.Remove(dumps[0]))
}

// totals parses the sum of a dump of callgrind.
func totals(dump string) (int64, error) {
	for line := range strings.Lines(dump) {
		if sum, ok := strings.CutPrefix(line, "totals:"); ok {
			return strconv.ParseInt(strings.TrimSpace(sum), 10, 64)
		}
	}
	return 0, errors.New("a dump of callgrind without its totals")
}
