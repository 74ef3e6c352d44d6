// Command release prepares a version of all modules of the repository. The nested modules require the root module at
// the same version:
//
//	go run -C tools ./release v0.2.0
//
// It edits go.work and the go.mod and go.sum of the nested modules, keeps the scripts of the version for the tests of
// later ones, stages the changes, and prints the remaining steps.
// It neither commits nor pushes.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run -C tools ./release v0.2.0")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version string) error {
	repository, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	changed, err := git(repository, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("commit or remove these first:\n%s", changed)
	}
	tags, err := prepare(repository, version)
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
