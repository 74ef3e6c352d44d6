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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/lab/measure/internal/server"
)

func main() {
	server.ServeDelayed()
	scratch.Use("fencelock-peers")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "measure: %v\n", err)
		os.Exit(1)
	}
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if cfg.list {
		for _, w := range workloads() {
			fmt.Fprintf(stdout, "%-16s%s\n", w.Name, w.About)
		}
		return nil
	}
	return harness.Run(ctx, func(t testing.TB) error {
		s := &site{t: t, binary: cfg.server, window: cfg.window}
		all, failed := measure(ctx, cfg, s, stdout, stderr)
		writeConditions(stdout, s, cfg.rounds)
		if cfg.svg != "" {
			failed = errors.Join(failed, drawAll(cfg.svg, all))
		}
		return failed
	})
}

// measure writes the table of each workload as soon as it is over.
func measure(ctx context.Context, cfg config, s *site, stdout, stderr io.Writer) (all []WorkloadResult, failed error) {
	r := &runner{site: s, rounds: cfg.rounds, progress: stderr}
	for _, w := range cfg.workloads {
		if ctx.Err() != nil {
			break
		}
		one := r.run(ctx, w)
		all, failed = append(all, one), errors.Join(failed, one.failed())
		writeWorkload(stdout, one)
	}
	return all, failed
}

// config is the command line's settings.
type config struct {
	workloads []Workload
	list      bool
	server    string
	window    time.Duration
	rounds    int
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
	fs := flag.NewFlagSet("measure", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&names, "w", "all", "the `workloads`, with commas between; all for those on a server of their own "+
		"(but instructions, which needs valgrind), deployed for the one behind Sentinel and in a Cluster, list to see them")
	fs.StringVar(&c.server, "server", "redis-server", "the `program` to start as server, such as valkey-server")
	fs.DurationVar(&c.window, "for", time.Second, "how long a peer's turn within a round takes")
	fs.IntVar(&c.rounds, "rounds", 3, "number of rounds")
	fs.StringVar(&c.svg, "svg", "", "draw the plots into this `folder`")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(help, "Usage: go run -C lab ./measure [flags]")
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
		c.workloads = []Workload{failover()}
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
