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

	"github.com/seed74116694/fencelock/internal/scratch"
)

func main() {
	scratch.Use("fencelock-peers")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	cfg, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if cfg.list {
		return list(stdout)
	}
	s := &site{binary: cfg.server, window: cfg.window}
	defer func() { err = errors.Join(err, s.close()) }()
	conditions, err := readConditions(ctx, s, cfg)
	if err != nil {
		return err
	}
	r := &runner{site: s, rounds: cfg.rounds, progress: stderr}
	result := Result{Conditions: conditions}
	var failed error
	for _, w := range cfg.workloads {
		one := r.run(ctx, w)
		result.Workloads = append(result.Workloads, one)
		failed = errors.Join(failed, one.failed())
		if err := printTo(stdout, func(out *bytes.Buffer) { writeWorkload(out, one) }); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	result.Bounds = judge(result.Workloads)
	return errors.Join(failed, report(cfg, result, stdout))
}

func list(stdout io.Writer) error {
	return printTo(stdout, func(out *bytes.Buffer) {
		for _, w := range workloads() {
			fmt.Fprintf(out, "%-16s%s\n", w.Name, w.About)
		}
	})
}

// report writes the output for the whole run.
func report(cfg config, r Result, stdout io.Writer) error {
	err := printTo(stdout, func(out *bytes.Buffer) {
		writeBounds(out, r.Bounds)
		writeConditions(out, r.Conditions)
	})
	if cfg.json != "" {
		err = errors.Join(err, writeJSON(cfg.json, r))
	}
	if cfg.svg != "" {
		err = errors.Join(err, drawAll(cfg.svg, r.Workloads))
	}
	return err
}

// printTo writes the output of write at once.
func printTo(w io.Writer, write func(*bytes.Buffer)) error {
	var out bytes.Buffer
	write(&out)
	_, err := out.WriteTo(w)
	return err
}
