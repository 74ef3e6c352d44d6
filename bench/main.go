package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses.
const (
	statusOK       = 0
	statusViolated = 1 // or the run could not show anything
	statusNoRun    = 2 // bad flags, servers out of reach, a picture that cannot be written
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is main without the process around it. When ctx ends, the work ends early and the result is still written.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return statusOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v (-h shows the flags)\n", err)
		return statusNoRun
	}
	b, err := prepare(ctx, cfg)
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return statusNoRun
	}
	defer b.close()
	return b.run(ctx, stdout, stderr)
}

func (b *bench) run(ctx context.Context, stdout, stderr io.Writer) int {
	r := b.work(ctx, stderr)
	if err := b.report(&r, stdout); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return statusViolated
	}
	return statusOK
}

// report writes table or JSON, draws the picture and returns what there is to complain of.
func (b *bench) report(r *result, stdout io.Writer) error {
	var failed error
	if b.cfg.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		failed = e.Encode(r)
	} else {
		writeTable(stdout, r)
	}
	if b.svg != nil {
		failed = errors.Join(failed, b.draw())
	}
	if !b.cfg.json && b.svg == nil {
		fmt.Fprintln(stdout, "\n-svg FILE draws who held what when, and the refused late write.")
	} else if !b.cfg.json {
		fmt.Fprintf(stdout, "\n%s shows who held what when, and the refused late write.\n", b.cfg.svg)
	}
	return errors.Join(r.verdict(), failed)
}
