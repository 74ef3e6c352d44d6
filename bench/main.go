package main

import (
	"bytes"
	"context"
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
	statusNoRun    = 2 // bad flags, servers out of reach
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
		if _, err = help.WriteTo(stdout); err == nil {
			return statusOK
		}
	}
	var b *bench
	if err == nil {
		b, err = prepare(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v (-h shows the flags)\n", err)
		return statusNoRun
	}
	defer b.close()
	return b.run(ctx, stdout, stderr)
}

func (b *bench) run(ctx context.Context, stdout, stderr io.Writer) int {
	_, said := fmt.Fprintln(stdout, b.result.head)
	b.work(ctx, stderr)
	_, err := io.WriteString(stdout, b.result.String())
	if err = errors.Join(b.result.verdict(), said, err); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return statusViolated
	}
	return statusOK
}
