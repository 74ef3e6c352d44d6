// Command fencelock shows the locks of a Redis, and what is wrong with a Redis for locks. It needs no other process, so
// the application may be down.
//
//	fencelock list           the locks in use: their holders, since when, and how many wait
//	fencelock inspect NAME   one lock: its holders, its waiters in order, and each master's own view
//	fencelock stuck NAME     whether the holders of a lock still renew it, and what to do if not
//	fencelock watch NAME     one lock: a line for each change, until it is interrupted
//	fencelock break NAME     takes the lock away from a holder or a waiter, and waits until it is free of it
//	fencelock lock NAME -- COMMAND [ARG...]   runs a command while it holds the lock
//	fencelock found          makes new masters of a quorum a set, whose first lock is granted at once
//	fencelock doctor         checks each server, and says what to do about what it finds
//	fencelock serve          a page about the locks in use, for a browser on this machine
//
// Flags may stand before and after a name; -h after a sub-command lists its flags. The Redis is that of -addr, of the
// environment variable FENCELOCK_URL, of REDIS_URL, or 127.0.0.1:6379, in this order. Each is host:port or a URL, as
// rwlock.Open takes it:
//
//	redis://user:password@host:6379/0                        one server; rediss:// is TLS
//	redis://:password@host:6379                              the same, where there is only a password
//	redis://host-a:6379,host-b:6379,host-c:6379              a quorum of masters
//	unix:///run/redis.sock?db=0                              one server, by its socket
//	redis-sentinel://user:password@host-a:26379,host-b/name  the master that the sentinels call name
//	redis-cluster://host-a:6379,host-b:6379                  a Cluster, by some of its nodes
//	redis://host-a:6379?addr=host-b:6379                     the same, by another form
//	redis://host-a:26379?addr=host-b:26379&master_set=name   sentinels, by another form
//
// The exit status is 0 if all is well; 1 if a server did not answer or refused, or doctor has found an error; 2 for a
// wrong command line; 3 if the lock of inspect is free, the hold of break is gone, or doctor has found warnings and no
// errors. The sub-command lock ends with the status of its command, or with 120 to 124: its -h has them.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// The exit statuses.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
	statusNo     = 3 // the lock is free, the hold is gone; doctor has only warnings
)

// command is one sub-command. define adds its own flags to those of the connection, and returns what runs it.
type command struct {
	name, arguments, about string
	define                 func(*flag.FlagSet) func(context.Context, *session) (int, error)
	help                   string // what -h says after the flags
}

const statusHelp = "\nThe exit status is 0; 2 if the command line is wrong; 1 if a server does not answer or refuses"

var commands = []command{
	{name: "list", about: "the locks in use: their holders, since when, and how many wait", define: defineList},
	{
		name: "inspect", arguments: "NAME", define: defineInspect, help: statusHelp + "; 3 if the lock is free\n",
		about: "one lock: its holders, its waiters in order, and each master's own view",
	},
	{
		name: "stuck", arguments: "NAME", define: defineStuck, help: statusHelp + "; 3 if the lock is free\n",
		about: "whether the holders of a lock still renew it, and what to do; it takes up to a TTL",
	},
	{name: "watch", arguments: "NAME", about: "one lock: a line for each change", define: defineWatch},
	{
		name: "break", arguments: "NAME", define: defineBreak, help: statusHelp + "; 3 if the hold is gone\n",
		about: "takes the lock away from a holder or a waiter, and waits until it is gone",
	},
	{
		name: "lock", arguments: "NAME [NAME...] [-- COMMAND [ARG...]]", define: defineLock,
		about: "runs a command while it holds the lock; of several, all or none", help: lockHelp,
	},
	{
		name: "found", define: defineFound,
		about: "makes new masters of a quorum a set, whose first lock is granted at once",
	},
	{
		name: "doctor", define: defineDoctor, help: statusHelp + ", or it has found an error; 3 if it has found warnings\n",
		about: "checks each server, and says what to do about what it finds",
	},
	{name: "serve", about: "a page about the locks in use, for a browser on this machine", define: defineServe},
}

// runs reports whether the sub-command takes several names and a command to run.
func (c *command) runs() bool { return strings.Contains(c.arguments, "--") }

// session is what a sub-command works with.
type session struct {
	target  target
	name    string   // the argument, of a sub-command that has one
	names   []string // of a sub-command that takes several
	command []string // what follows "--"; nil if there is none
	getenv  func(string) string
	out     io.Writer
	errs    io.Writer
}

// errUsage marks a mistake in the command line, for which the usage has been printed or the message says enough.
var errUsage = errors.New("usage")

// run is the whole command. getenv is os.Getenv.
func run(ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer) int {
	out, errs = terminal{out}, terminal{errs}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	if name == "version" || name == "-version" || name == "--version" {
		fmt.Fprintln(out, version())
		return statusOK
	}
	if name == "help" && len(args) > 1 {
		name, args = args[1], []string{args[1], "-h"}
	}
	for _, c := range commands {
		if c.name == name {
			status, err := c.run(ctx, args[1:], getenv, out, errs)
			if status = report(ctx, status, err, errs); err != nil && c.runs() {
				return lockStatus(status)
			}
			return status
		}
	}
	w := errs
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		w = out
	} else if name != "" {
		fmt.Fprintf(errs, "fencelock: there is no sub-command %q\n\n", name)
	}
	fmt.Fprint(w, "usage: fencelock SUB-COMMAND [flags]\n\n")
	for _, c := range commands {
		arguments, _, _ := strings.Cut(c.arguments, " [")
		fmt.Fprintf(w, "  %-14s %s\n", strings.TrimSpace(c.name+" "+arguments), c.about)
	}
	fmt.Fprintf(w, "  %-14s %s\n", "version", "which fencelock this is")
	fmt.Fprint(w, "\nfencelock SUB-COMMAND -h lists its flags. The Redis: -addr, or FENCELOCK_URL or REDIS_URL.\n")
	if w == out {
		return statusOK
	}
	return statusUsage
}

// version names the version or the commit that the program was built from.
func version() string {
	info, known := debug.ReadBuildInfo()
	if !known {
		return "fencelock, of an unknown version"
	}
	text := "fencelock " + cmp.Or(info.Main.Version, "(devel)") + ", " + info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += ", commit " + s.Value
		}
	}
	return text
}

// report prints the error and returns the status that the process ends with.
func report(ctx context.Context, status int, err error, errs io.Writer) int {
	switch {
	case err == nil:
		return status
	case errors.Is(err, flag.ErrHelp):
		return statusOK
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // interrupted
		return statusFailed
	case errors.Is(err, errUsage):
		return statusUsage
	}
	text := plain(err)
	if unusable, ok := errors.AsType[*connectionError](err); ok {
		text = unusable.Error()
	}
	fmt.Fprintf(errs, "fencelock: %s\n", text)
	if errors.Is(err, rwlock.ErrOption) {
		return statusUsage
	}
	return statusFailed
}

func (c *command) run(
	ctx context.Context, args []string, getenv func(string) string, out, errs io.Writer,
) (int, error) {
	flags := flag.NewFlagSet("fencelock "+c.name, flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {}
	usage := func() {
		fmt.Fprintf(flags.Output(), "usage: %s\n%s\n\n", strings.TrimSpace(flags.Name()+" [flags] "+c.arguments), c.about)
		flags.PrintDefaults()
		fmt.Fprint(flags.Output(), c.help)
	}
	s := &session{getenv: getenv, out: out, errs: errs}
	wrong := func(text string) (int, error) {
		fmt.Fprintf(errs, "fencelock %s: %s\n", c.name, text)
		return 0, errUsage
	}
	if i := slices.Index(args, "--"); i >= 0 && c.runs() {
		if args, s.command = args[:i], args[i+1:]; len(s.command) == 0 {
			return wrong("no command follows --")
		}
	}
	given := s.target.define(flags)
	work := c.define(flags)
	var names []string
	for rest := args; ; rest = flags.Args()[1:] { // flags may stand after a name
		if err := flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				flags.SetOutput(out)
				usage()
				return 0, err
			}
			usage()
			return 0, errUsage // the flag package has printed the mistake
		}
		if flags.NArg() == 0 {
			break
		}
		names = append(names, flags.Arg(0))
	}
	switch {
	case c.runs():
		if s.names = names; len(names) == 0 {
			return wrong("takes the name of a lock before --")
		}
	case c.arguments == "" && len(names) > 0:
		return wrong(fmt.Sprintf("takes no argument %q", names[0]))
	case c.arguments != "" && len(names) != 1:
		return wrong(fmt.Sprintf("takes one name, and %d are given", len(names)))
	case len(names) == 1:
		s.name = names[0]
	}
	if err := s.target.complete(given(), getenv); err != nil {
		return wrong(err.Error())
	}
	status, err := work(ctx, s)
	return status, s.target.advised(err)
}
