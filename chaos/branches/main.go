// Command branches finds a test for each branch of the Lua scripts and for each of their reply codes.
//
//	go run -C chaos ./branches                              # names the branches that no test reaches
//	go run -C chaos ./branches -table ../docs/script-branches.md # writes the page
//	go run -C chaos ./branches -list                        # the branches, and no run
//
// A branch is the body of an if, elseif or else, of a loop or of a function; an if without an else has a branch for
// the other case. The scripts are built into the tests with a line of the server's log at the beginning of each branch.
// That changes no command, key or reply. The tests then run on a redis-server one by one, in the order of the page:
// first the corpus of internal/test/scriptfuzz, then its random sequences, then the tests of package scripts, until
// nothing is left. A branch belongs to the first one that reaches it.
//
// The exit status is 1 if no test reaches a branch.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/seed74116694/fencelock/internal/test/scratch"
)

func main() {
	table := flag.String("table", "", "write this page")
	list := flag.Bool("list", false, "print the branches, and run no test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *table, *list, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "branches:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, table string, list bool, out io.Writer) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	all, files, err := load(root)
	if err != nil {
		return err
	}
	if list {
		for _, b := range all {
			fmt.Fprintln(out, b.file, b.what)
		}
		return nil
	}
	temporary, err := scratch.New("branches")
	if err != nil {
		return err
	}
	defer func() { _ = temporary.Close() }()
	l := &lab{root: root, scratch: temporary.Path(), out: out}
	reached, err := l.run(ctx, files, len(all))
	if err != nil {
		return err
	}
	if table != "" {
		if err := os.WriteFile(table, []byte(page(all, reached)), 0o644); err != nil {
			return err
		}
	}
	var never []string
	for i, b := range all {
		if reached.branches[i] == "" {
			never = append(never, b.file+" "+b.what)
		}
	}
	if len(never) > 0 {
		return fmt.Errorf("no test reaches\n%s", strings.Join(never, "\n"))
	}
	return nil
}

// findRoot returns the folder of go.work.
func findRoot() (string, error) {
	work, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(work))), nil
}
