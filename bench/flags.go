package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// config is the command line's settings.
type config struct {
	addrs    []string // of real servers; none for embedded ones
	masters  int
	length   time.Duration
	clients  int
	names    int
	json     bool
	svg      string // file name, or ""
	unfenced bool   // the picture is of the late write alone
}

// The limits keep a typing error from opening ten thousand connections.
const (
	maxMasters = 15
	maxClients = 256
	maxNames   = 1000
)

// parseFlags reads and checks the command line. The error is one line, or flag.ErrHelp after the help was written.
func parseFlags(args []string, help io.Writer) (config, error) {
	var c config
	var addrs string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&addrs, "addr", "", "real servers: `host:port`, or an odd number of them,\nwith commas between")
	fs.IntVar(&c.masters, "masters", 3, "embedded masters: 1, or odd for a quorum")
	fs.DurationVar(&c.length, "for", 5*time.Second, "how long the clients work")
	fs.IntVar(&c.clients, "clients", 8, "clients, each with its own connections")
	fs.IntVar(&c.names, "names", 4, "names that they lock")
	fs.BoolVar(&c.json, "json", false, "write the result as JSON, and nothing else to\nstandard output")
	fs.StringVar(&c.svg, "svg", "", "draw who held what when, and the refused late write,\ninto this `file`")
	fs.BoolVar(&c.unfenced, "unfenced", false,
		"draw the late write where no token is checked,\nbeside the refused one, into unfenced.svg or -svg")

	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(help, "Usage: go run ./bench [flags]")
		fs.SetOutput(help)
		fs.PrintDefaults()
		return c, err
	} else if err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("%q is not a flag", fs.Arg(0))
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if given["addr"] {
		if err := c.useServers(addrs, given["masters"]); err != nil {
			return c, err
		}
	}
	if given["svg"] && c.svg == "" {
		return c, errors.New("-svg: the file name is empty")
	}
	if c.unfenced && c.svg == "" {
		c.svg = "unfenced.svg"
	}
	return c, c.check()
}

func (c *config) useServers(list string, mastersGiven bool) error {
	c.addrs = strings.Split(list, ",")
	for i, addr := range c.addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("-addr: %q is not host:port", addr)
		}
		if slices.Contains(c.addrs[:i], addr) {
			return fmt.Errorf("-addr: %s is named twice", addr)
		}
	}
	if mastersGiven && c.masters != len(c.addrs) {
		return fmt.Errorf("-masters %d: -addr names %d", c.masters, len(c.addrs))
	}
	c.masters = len(c.addrs)
	return nil
}

func (c *config) check() error {
	if c.length <= 0 {
		return fmt.Errorf("-for %v: must be positive", c.length)
	}
	if c.masters%2 == 0 && c.masters > 0 && len(c.addrs) > 0 {
		return fmt.Errorf("-addr: %d servers: must be one, or an odd number", c.masters)
	}
	for _, f := range []struct {
		name       string
		value, max int
	}{{"masters", c.masters, maxMasters}, {"clients", c.clients, maxClients}, {"names", c.names, maxNames}} {
		if f.value < 1 || f.value > f.max {
			return fmt.Errorf("-%s %d: must be 1 to %d", f.name, f.value, f.max)
		}
	}
	if c.masters%2 == 0 {
		return fmt.Errorf("-masters %d: must be 1, or odd for a quorum", c.masters)
	}
	return nil
}
