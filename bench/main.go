package main

import (
	"bufio"
	"bytes"
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
	statusViolated = 1 // or the run could not show anything, or its result could not be written
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
	var help bytes.Buffer
	cfg, err := parseFlags(args, &help)
	if errors.Is(err, flag.ErrHelp) {
		if _, err := help.WriteTo(stdout); err != nil {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			return statusNoRun
		}
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
	status := statusOK
	for _, err := range []error{r.verdict(), b.report(&r, stdout), b.draw()} {
		if err != nil {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			status = statusViolated
		}
	}
	return status
}

// report writes the table or JSON. It returns an error if not all of it was written.
func (b *bench) report(r *result, stdout io.Writer) error {
	out := bufio.NewWriter(stdout) // its first error stays until Flush
	if b.cfg.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		_ = e.Encode(r) // as above
	} else {
		writeTable(out, r)
		writeFooter(out, b.cfg)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("the result could not be written: %w", err)
	}
	return nil
}
