// Command noise writes a build overlay that puts scheduling noise into the packages where the order of goroutines
// matters:
//
//	go run -C tools ./noise /tmp/noise
//	FENCELOCK_NOISE=1 go test -overlay /tmp/noise/overlay.json ./rwlock
//
// The copies have points before and after each operation that orders goroutines: mutexes, atomics and the rest of
// package sync, channels, calls of stored functions, and go statements. A point yields, sleeps or does nothing: package
// schedulenoise, which the workspace holds. Lines keep their numbers. The command prints how many operations have
// points, and lists the places where it could put none.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// packages are the folders of the root module that get points.
var packages = []string{
	"rwlock", "reentrant", "internal/engine", "internal/localqueue", "internal/transport", "internal/events",
	"internal/timerqueue", "internal/ballot", "internal/masterset",
}

func main() {
	if len(os.Args) != 2 || !filepath.IsAbs(os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: go run -C tools ./noise ABSOLUTE_FOLDER")
		os.Exit(2)
	}
	reports, err := write(os.Args[1], "..", packages, variant{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "noise:", err)
		os.Exit(1)
	}
	printReports(os.Stdout, reports)
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
