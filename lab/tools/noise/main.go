// Command noise writes a build overlay that puts scheduling noise into the packages where the order of goroutines
// matters:
//
//	go run -C lab/tools ./noise /tmp/noise
//	FENCELOCK_NOISE=1 go test -overlay /tmp/noise/overlay.json ./rwlock
//
// The copies have points before and after each operation that orders goroutines: mutexes, atomics and the rest of
// package sync, channels, calls of stored functions, and go statements. A point yields, sleeps or does nothing: package
// schedulenoise, which the workspace holds. Lines keep their numbers. The command prints how many operations have
// points, and lists the places where it could put none.
//
// With -explore it runs scenarios instead, in every order of their goroutines' steps within a bound: package explore.
//
//	go run -C lab/tools ./noise -explore Linger          # the scenarios with such a name
//	go run -C lab/tools ./noise -explore Linger -more 1  # with one more interruption
//	go run -C lab/tools ./noise -explore Linger -overlay /tmp/overlay.json
//
// With -more the overlay changes the Go runtime too, so that each of many schedules is repeated step by step: the
// runtime draws from a seed, and has no time slices. The first such run builds the standard library anew.
//
// An overlay, of the format that the go command reads, has its files stand for those of the sources in both uses.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// packages are the folders of the root module that get points.
var packages = []string{
	"rwlock", "reentrant", "internal/engine", "internal/localqueue", "internal/transport", "internal/events",
	"internal/timerqueue", "internal/ballot", "internal/ctxend", "internal/masterset", "internal/crowd",
	"internal/releases", "internal/admin",
}

func main() {
	pattern := flag.String("explore", "", "run the scenarios of that pattern, and write no overlay")
	more := flag.Int("more", 0, "so many more interruptions in the scenarios of whole lockers")
	changes := flag.String("overlay", "", "an overlay whose files stand for those of the sources")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run -C lab/tools ./noise [flags] ABSOLUTE_FOLDER")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*pattern, *more, *changes, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "noise:", err)
		os.Exit(1)
	}
}

func run(pattern string, more int, changes string, args []string) error {
	const root = "../.."
	changed := map[string]string{}
	if changes != "" {
		var err error
		if changed, err = readOverlay(changes, root); err != nil {
			return err
		}
	}
	if pattern != "" {
		folder, err := os.MkdirTemp("", "explore")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		e := exploration{
			root: root, packages: explored, changed: changed, pattern: pattern, exact: more > 0,
			args: []string{"-more", strconv.Itoa(more)},
		}
		return e.run(folder, os.Stdout)
	}
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		flag.Usage()
		return errors.New("the folder of the overlay is missing, or is not absolute")
	}
	reports, err := write(args[0], root, packages, variant{changed: changed})
	if err == nil {
		printReports(os.Stdout, reports)
	}
	return err
}

func printReports(out io.Writer, reports []report) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "package\t")
	for _, k := range kinds {
		fmt.Fprintf(table, "%s\t", k)
	}
	fmt.Fprintln(table, "points\t")
	for _, r := range reports {
		fmt.Fprintf(table, "%s\t", r.folder)
		for _, k := range kinds {
			fmt.Fprintf(table, "%d\t", r.operations[k])
		}
		fmt.Fprintf(table, "%d\t\n", r.points)
	}
	_ = table.Flush() // what is printed to a terminal has no other reader
	for _, r := range reports {
		for _, place := range r.without {
			fmt.Fprintln(out, "no point:", place)
		}
	}
}
