package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/lab/peer"
)

// Conditions are the circumstances that the figures depend on.
type Conditions struct {
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Server   string            `json:"server"`
	Modules  map[string]string `json:"modules"`
	Rounds   int               `json:"rounds"`
	Window   string            `json:"window"`
}

func readConditions(ctx context.Context, s *site, cfg config) (Conditions, error) {
	c := Conditions{
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPU: cpuModel(), Cores: runtime.NumCPU(), Modules: peer.Versions(),
		Rounds: cfg.rounds, Window: cfg.window.String(),
	}
	servers, err := s.empty(ctx, 1)
	if err != nil {
		return c, err
	}
	c.Server, err = servers[0].Version(ctx)
	return c, err
}

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

func writeConditions(out *bytes.Buffer, c Conditions) {
	fmt.Fprintf(out, "conditions: %s on %s, %d cores of %s; %s without persistence, over loopback\n",
		c.Go, c.Platform, c.Cores, c.CPU, c.Server)
	fmt.Fprintf(out, "rounds: %d of %s for each peer; medians, ratios within a round\n", c.Rounds, c.Window)
	for _, path := range slices.Sorted(maps.Keys(c.Modules)) {
		fmt.Fprintf(out, "  %s %s\n", path, c.Modules[path])
	}
}
