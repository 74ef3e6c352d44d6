package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/seed74116694/fencelock/lab/peer"
)

// cpuModel is known on Linux only.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// writeConditions writes the circumstances that the figures depend on.
func writeConditions(out io.Writer, s *site, rounds int) {
	version, _ := exec.Command(s.binary, "--version").Output() // Redis server v=7.0.15 sha=...
	words := strings.Fields(string(version))
	fmt.Fprintf(out, "conditions: %s on %s/%s, %d cores of %s; %s without persistence, over loopback\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpuModel(),
		strings.Join(words[:min(3, len(words))], " "))
	fmt.Fprintf(out, "rounds: %d of %s for each peer; medians, ratios within a round\n", rounds, s.window)
	peer.WriteVersions(out)
}
