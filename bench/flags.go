package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// config is the command line's settings.
type config struct {
	addrs                   []string // of real servers; none for embedded ones
	masters, clients, names int
	length                  time.Duration
}

// parseFlags reads and checks the command line. The error is one line, or flag.ErrHelp after the help was written.
func parseFlags(args []string, help io.Writer) (config, error) {
	var c config
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	addrs := fs.String("addr", "", "real servers: `host:port`, or an odd number of them,\nwith commas between")
	fs.IntVar(&c.masters, "masters", 3, "embedded masters: 1, or odd for a quorum")
	fs.DurationVar(&c.length, "for", 5*time.Second, "how long the clients work")
	fs.IntVar(&c.clients, "clients", 8, "clients, each with its own connections")
	fs.IntVar(&c.names, "names", 4, "names that they lock")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(help, "Usage: go run ./bench [flags]")
		fs.SetOutput(help)
		fs.PrintDefaults()
		return c, err
	} else if err != nil {
		return c, err
	}
	if *addrs != "" {
		c.addrs = strings.Split(*addrs, ",")
		c.masters = len(c.addrs)
	}
	for _, addr := range c.addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return c, fmt.Errorf("-addr: %q is not host:port", addr)
		}
	}
	// The limits keep a typing error from opening ten thousand connections.
	for _, f := range []struct {
		what       string
		value, max int
	}{{"masters", c.masters, 15}, {"clients", c.clients, 256}, {"names", c.names, 1000}} {
		if f.value < 1 || f.value > f.max {
			return c, fmt.Errorf("%d %s: must be 1 to %d", f.value, f.what, f.max)
		}
	}
	switch {
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q is not a flag", fs.Arg(0))
	case c.length <= 0:
		return c, fmt.Errorf("-for %v: must be positive", c.length)
	case c.masters%2 == 0:
		return c, fmt.Errorf("%d masters: must be 1, or odd for a quorum", c.masters)
	}
	return c, nil
}
