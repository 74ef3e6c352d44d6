// Command release prepares a version of all modules of the repository. The nested modules require the root module at
// the same version:
//
//	go run -C lab/tools ./release v0.2.0
//
// It refuses a version that does not fit: another one than the changelog says, one that is not above the last, one that
// takes from the API what the changelog does not name, or what a patch may not; and a page that says that there is no
// release yet. Else it gives the section [Unreleased] of CHANGELOG.md the version and the date, edits go.work, and
// go.mod and go.sum of the nested modules, keeps the exported API and the scripts of the version for the tests of later
// ones, stages the changes, and prints the remaining steps. It neither commits nor pushes.
//
//	go run -C lab/tools ./release -changes
//
// prints the changes of the exported API since the last release.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	changes := flag.Bool("changes", false, "print how the exported API differs from that of the last release")
	baseline := flag.Bool("baseline", false, "make the exported API that of the last release, without a release")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run -C lab/tools ./release v0.2.0 | -changes | -baseline")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*changes, *baseline, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(changes, baseline bool, args []string) error {
	repository, err := git(".", "rev-parse", "--show-toplevel")
	switch {
	case err != nil:
		return err
	case changes:
		return printChanges(repository)
	case baseline:
		return writeAPI(repository)
	case len(args) == 1:
		return release(repository, args[0])
	}
	flag.Usage()
	return fmt.Errorf("no version")
}

func printChanges(repository string) error {
	gone, added, err := changesOfAPI(repository)
	for _, line := range gone {
		fmt.Println("-", line)
	}
	for _, line := range added {
		fmt.Println("+", line)
	}
	return err
}

func release(repository, version string) error {
	changed, err := git(repository, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("commit or remove these first:\n%s", changed)
	}
	tags, err := prepare(repository, version, time.Now())
	if err != nil {
		return err
	}
	fmt.Printf("git commit -m 'release %s'\n", version)
	for _, tag := range tags {
		fmt.Printf("git tag -a -m %s %s\n", tag, tag)
	}
	fmt.Print("git push --atomic --follow-tags\n")
	return nil
}
