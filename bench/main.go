// Command bench runs the library under a mixed load. Several clients, each with a locker of its own like a separate
// process, read and write a few names. One holder is stalled past its lease again and again, and then writes late.
//
//	go run ./bench                          # three masters inside this process
//	go run ./bench -addr 127.0.0.1:6379     # a real server
//	go run ./bench -addr a:6379,b:6379,c:6379 -for 30s
//
// A judge without access to the lock's internals verifies the rules: no two leases that exclude each other are trusted
// at one moment, a write's token exceeds all before it and a read's token all writes before it, and the storage refuses
// every late write. The exit status is 1 if a rule was violated, if the servers did not last to the end, or if the
// result could not be written; and 2 if the run could not begin.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const statusOK, statusViolated, statusNoRun = 0, 1, 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process around it. When ctx ends, the work ends early and the result is still written.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return statusOK
	}
	b := &bench{cfg: cfg}
	defer b.close()
	if err == nil {
		err = b.prepare(ctx, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v (-h shows the flags)\n", err)
		return statusNoRun
	}
	if err := b.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return statusViolated
	}
	return statusOK
}

// config is the command line's settings.
type config struct {
	addrs                   []string // of real servers; none for embedded ones
	masters, clients, names int
	length                  time.Duration
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("go run ./bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	addrs := fs.String("addr", "", "real servers: `host:port` or a URL, or an odd number,\nwith commas between")
	fs.IntVar(&c.masters, "masters", 3, "embedded masters: 1, or odd for a quorum")
	fs.DurationVar(&c.length, "for", 5*time.Second, "how long the clients work")
	fs.IntVar(&c.clients, "clients", 8, "clients, each with its own connections")
	fs.IntVar(&c.names, "names", 4, "names that they lock")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if *addrs != "" {
		c.addrs = strings.Split(*addrs, ",")
		c.masters = len(c.addrs)
	}
	switch {
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q is not a flag", fs.Arg(0))
	case c.length <= 0:
		return c, fmt.Errorf("-for %v: must be positive", c.length)
	case min(c.masters, c.clients, c.names) < 1 || c.masters > 15 || c.clients > 256 || c.names > 1000:
		return c, errors.New("1 to 15 -masters, 1 to 256 -clients and 1 to 1000 -names are possible")
	}
	return c, nil
}
