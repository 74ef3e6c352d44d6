package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/bench/peers/internal/server"
)

// config is the command line's settings.
type config struct {
	workloads []Workload
	list      bool
	server    string
	window    time.Duration
	rounds    int
	json      string // file name, or ""
	svg       string // folder, or ""
}

// The limits bound a run in time.
const (
	maxRounds = 100
	maxWindow = time.Minute
)

// parseFlags reads and checks the command line. The error is flag.ErrHelp after the help was written.
func parseFlags(args []string, help io.Writer) (config, error) {
	var c config
	var names string
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&names, "w", "all", "the `workloads`, with commas between; all for those on a server of their own "+
		"(but instructions, which needs valgrind), deployed for those behind Sentinel and in a Cluster, list to see them")
	fs.StringVar(&c.server, "server", server.Default, "the `program` to start as server, such as valkey-server")
	fs.DurationVar(&c.window, "for", time.Second, "how long a peer's turn within a round takes")
	fs.IntVar(&c.rounds, "rounds", 3, "number of rounds")
	fs.StringVar(&c.json, "json", "", "write every round into this `file`")
	fs.StringVar(&c.svg, "svg", "", "draw the plots into this `folder`")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(help, "Usage: go run -C bench/peers . [flags]")
		fs.SetOutput(help)
		fs.PrintDefaults()
		return c, err
	} else if err != nil {
		return c, err
	}
	_, unknown := exec.LookPath(c.server)
	switch {
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q is not a flag", fs.Arg(0))
	case c.rounds < 1 || c.rounds > maxRounds:
		return c, fmt.Errorf("-rounds %d: must be 1 to %d", c.rounds, maxRounds)
	case unknown != nil:
		return c, fmt.Errorf("-server: %w", unknown)
	case c.window <= 0 || c.window > maxWindow:
		return c, fmt.Errorf("-for %v: must be positive, and %v at most", c.window, maxWindow)
	}
	return c, c.choose(names)
}

func (c *config) choose(names string) error {
	c.list = names == "list"
	switch names {
	case "list":
		return nil
	case "all":
		c.workloads = single()
		return nil
	case "deployed":
		c.workloads = deployed()
		return nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(workloads(), func(w Workload) bool { return w.Name == name })
		if i < 0 {
			return fmt.Errorf("-w: there is no workload %q (-w list names them)", name)
		}
		c.workloads = append(c.workloads, workloads()[i])
	}
	return nil
}
