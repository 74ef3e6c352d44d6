package commands_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// elsewhere are commands that something else runs, and what it is.
var elsewhere = map[string]string{
	"bash .ci/run":  "everybody who changes something",
	"go test ./...": ".ci/run, with FENCELOCK_TESTS=all",
	"go test -v ./... | grep -E 'SKIP|install|FENCELOCK_TESTS'": ".ci/run, which skips nothing",
	"go test -race -shuffle=on ./...":                           ".ci/run, of the packages that share variables",
	"FENCELOCK_TESTS=all go test -p 4 work":                     ".ci/run, word for word",
	"golangci-lint run":                                         ".ci/run, in each module",
	"go get github.com/seed74116694/fencelock":                  "lab/tools/release, from a module proxy",
	"go get github.com/seed74116694/fencelock/locktest":         "lab/tools/release, from a module proxy",

	"go get github.com/seed74116694/fencelock/rwlock/goredisconf": "lab/tools/release, from a module proxy",

	"go mod tidy": "lab/tools/release: TestACloneStandsForTheModule",
	"go install github.com/seed74116694/fencelock/cmd/fencelock@latest": "a release; docs/integrations.md builds the " +
		"same program",

	"go run -C lab/tools ./release v0.2.0":    "lab/tools/release",
	"go run -C lab/tools ./release -baseline": "lab/tools/release",
	"go run -C lab/tools ./release -changes":  "lab/tools/release",
	"go test ./release":                       "lab/tools/release",
	"go test ./branches":                      "lab/tools/branches",

	"go run -C lab ./chaos -peers all -for 3m -seed 7 -plot ../docs/plots/peers-under-faults.svg": "" +
		"lab/chaos: TestLockSets, in a short form",
}

// TestCommandsOfTheDocuments runs every command of the documents, those that take long in a short form.
func TestCommandsOfTheDocuments(t *testing.T) {
	done, runTests := map[string]bool{}, testRunner()
	for path, page := range documents(t) {
		for _, command := range commandsOf(page) {
			if done[command] || elsewhere[command] != "" {
				continue
			}
			done[command] = true
			run := runnerOf(command, runTests)
			require.NotNil(t, run, "%s: nothing runs %q", path, command)
			t.Run(command, func(t *testing.T) { run(t, command) })
		}
	}
	require.Greater(t, len(done), 20)
}

// What CI runs word for word is in its script, but for the packages that it names to begin with them.
func TestCommandsOfCI(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	require.NoError(t, err)
	inOrder := strings.Replace(string(script), "$first ", "", 1)
	for command, where := range elsewhere {
		if strings.Contains(where, "word for word") {
			require.Contains(t, inOrder, "{ "+command+"; }")
		}
	}
}

func runnerOf(command string, runTests func(*testing.T, string)) func(*testing.T, string) {
	nothing := func(*testing.T, string) {} // a line of TestTidyOutsideTheWorkspace
	for prefix, run := range map[string]func(*testing.T, string){
		"go test ":                     runTests,
		"go tool ":                     findTool,
		"go run ./bench":               runBench,
		"go run ./cmd/fencelock ":      askForFlags,
		"go build -o /tmp/fencelock":   buildCommand,
		"go run -C lab ./measure ":     listWorkloads,
		"go run -C lab/tools ./noise ": underNoise,
		"FENCELOCK_NOISE=":             underNoise,
		"FENCELOCK_TESTS=":             runTests,
		"redis-cli ":                   askRedis,
		"cd ":                          nothing,
		"go mod edit ":                 nothing,
		"GOWORK=off go mod tidy":       nothing,
		"go run -C lab ./mutants":      listMutants,
		"go run -C lab ./chaos ":       readFlags,
	} {
		if strings.HasPrefix(command, prefix) {
			return run
		}
	}
	return nil
}

func runBench(t *testing.T, command string) { shell(t, root, command+" -for 1s") }

// underNoise runs the command that writes an overlay, and one that tests packages with it for one of them.
func underNoise(t *testing.T, command string) {
	overlay := t.TempDir()
	require.Contains(t, shell(t, root, "go run -C lab/tools ./noise "+overlay), "internal/engine")
	if test, packages, found := strings.Cut(command, "/overlay.json "); found {
		require.Contains(t, strings.Fields(packages), "./reentrant")
		test = strings.Replace(test, "/tmp/noise", overlay, 1) + "/overlay.json"
		require.Contains(t, shell(t, root, test+" ./reentrant -v -run 'Goroutines|Do'"), "FENCELOCK_NOISE=1\n")
	}
}

// askForFlags asks the command for its flags. What it does is tested on servers in its own package.
func askForFlags(t *testing.T, command string) {
	require.Contains(t, shell(t, root, command+" -h 2>&1"), "-addr")
}

// buildCommand builds the command for operators in a folder of its own. Its exit status is its own.
func buildCommand(t *testing.T, command string) {
	program := filepath.Join(t.TempDir(), "fencelock")
	shell(t, root, strings.Replace(command, "/tmp/fencelock", program, 1))
	var exit *exec.ExitError
	require.ErrorAs(t, exec.Command(program, "inspect").Run(), &exit)
	require.Equal(t, 2, exit.ExitCode())
}

// listMutants lists the mutants that the command would try. To try one takes seconds.
func listMutants(t *testing.T, command string) {
	require.Regexp(t, `(?m)^[a-z-]+: .`, shell(t, root, command+" -list"))
}

// readFlags gives the command's flags to chaos, which prints them instead of running for minutes.
func readFlags(t *testing.T, command string) {
	require.Contains(t, shell(t, root, command+" -h 2>&1"), "-deployment")
}

// shell runs a command in a folder and returns what it printed.
func shell(t *testing.T, folder, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", command)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PATH="+searched())
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Run(), "%s\n%s", command, &output)
	return output.String()
}

// searched is the PATH with the folder of internal/test/testredis/install-valkey.
func searched() string { return os.Getenv("PATH") + ":/opt/fencelock-valkey" }

var (
	folder  = regexp.MustCompile(`^(?:FENCELOCK_TESTS=all )?go test (\./\S+)`)
	pattern = regexp.MustCompile(`-(run|bench) ('[^']*'|\S+)`)
	plain   = regexp.MustCompile(`^(?:FENCELOCK_TESTS=all )?go test \./\S+(?: -run ('[^']*'|\S+)| -v)+$`)
	times   = regexp.MustCompile(`-benchtime \S+`)
)

// testRunner returns a function that runs the benchmarks that a command names, once each. Each alternative of a pattern
// must match. Tests are not run again: they have run with their package. If they have flags of their own, these are
// read.
func testRunner() func(*testing.T, string) {
	lists := map[string][]string{} // the names of the tests in a folder
	return func(t *testing.T, command string) {
		in := folder.FindStringSubmatch(command)
		require.NotNil(t, in, "no folder")
		if lists[in[1]] == nil {
			lists[in[1]] = strings.Fields(shell(t, root, "go test "+in[1]+" -list ."))
		}
		requireMatches(t, command, in[1], lists[in[1]])
		if plain.MatchString(command) {
			return
		}
		if !strings.Contains(command, " -bench ") {
			shell(t, root, command+" -list .")
			return
		}
		output := shell(t, root, times.ReplaceAllString(command, "")+" -benchtime 1x -short")
		if !strings.Contains(output, "--- SKIP") {
			require.Regexp(t, `(?m)^Benchmark`, output)
		}
	}
}

// requireMatches fails the test if a pattern of the command has an alternative that none of the names matches.
func requireMatches(t *testing.T, command, folder string, names []string) {
	t.Helper()
	for _, match := range pattern.FindAllStringSubmatch(command, -1) {
		kind := map[string]string{"run": "Test", "bench": "Benchmark"}[match[1]]
		for alternative := range strings.SplitSeq(strings.Trim(match[2], "'"), "|") {
			if alternative == "^$" || alternative == "xxx" { // no test: benchmarks alone
				continue
			}
			named := regexp.MustCompile(alternative)
			require.True(t, slices.ContainsFunc(names, func(name string) bool {
				return strings.HasPrefix(name, kind) && named.MatchString(name)
			}), "nothing in %s matches %q", folder, alternative)
		}
	}
}

// findTool builds the tool; what it would look at may not be there.
func findTool(t *testing.T, command string) {
	shell(t, root, "go tool -n "+strings.Fields(command)[2])
}

var workloads = regexp.MustCompile(` -w (\S+)`)

// listWorkloads gives the command's flags to the program, which prints what workloads there are: all have to be.
func listWorkloads(t *testing.T, command string) {
	if strings.Contains(command, "valkey-server") && exec.Command("sh", "-c",
		"PATH="+searched()+"; command -v valkey-server").Run() != nil {
		t.Skip("Valkey is not here: run internal/test/testredis/install-valkey as root")
	}
	list := shell(t, root, command+" -w list")
	named := workloads.FindStringSubmatch(command)
	require.NotNil(t, named)
	for name := range strings.SplitSeq(named[1], ",") {
		require.Regexp(t, `(?m)\b`+name+`\b`, list+"\nlist all deployed")
	}
}

// askRedis runs redis-cli against a server of its own.
func askRedis(t *testing.T, command string) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("redis-server is not here: apt-get install redis-server")
	}
	folder, err := os.MkdirTemp("", "redis") // short: a socket's path has a limit
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(folder)) }()
	socket := filepath.Join(folder, "s")
	server := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder)
	require.NoError(t, server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	require.Eventually(t, func() bool {
		return exec.Command("redis-cli", "-s", socket, "PING").Run() == nil
	}, time.Minute, 20*time.Millisecond)
	output := shell(t, root, strings.Replace(command, "redis-cli ", "redis-cli -s "+socket+" ", 1))
	require.NotContains(t, output, "ERR")
}

var tidying = regexp.MustCompile(
	"(?m)^ *cd fencing/grpcfence\n(?: *\\S.*\n)*? *GOWORK=off go mod tidy\n(?: *go mod .*\n)*")

// The lines by which a nested module is tidied, in a copy of the repository, leave its go.mod as it is.
func TestTidyOutsideTheWorkspace(t *testing.T) {
	lines := tidying.FindString(documents(t)[filepath.Join(root, "CONTRIBUTING.md")])
	require.NotEmpty(t, lines)
	clone := t.TempDir()
	shell(t, root, "git ls-files -z | tar --null -T - -cf - | tar -xf - -C "+clone)
	shell(t, clone, lines)
	for _, name := range []string{"go.mod", "go.sum"} {
		was, err := os.ReadFile(filepath.Join(root, "fencing", "grpcfence", name))
		require.NoError(t, err)
		is, err := os.ReadFile(filepath.Join(clone, "fencing", "grpcfence", name))
		require.NoError(t, err)
		require.Equal(t, string(was), string(is), name)
	}
}

const root = "../../.."

var (
	programs = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )?(?:go|bash|sh|cd|redis-cli|golangci-lint) .`)
	span     = regexp.MustCompile("`([^`\n]+)`")
	comment  = regexp.MustCompile(`\s+# .*$`)
)

// commandsOf returns the commands that a page shows, in blocks of code and in spans within its text.
func commandsOf(page string) (found []string) {
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") {
			if command := comment.ReplaceAllString(trimmed, ""); programs.MatchString(command) {
				found = append(found, command)
			}
			continue
		}
		for _, match := range span.FindAllStringSubmatch(line, -1) {
			if programs.MatchString(match[1]) && match[1] != "go test" {
				found = append(found, match[1])
			}
		}
	}
	return found
}

// documents returns the text of every page by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	pages := map[string]string{}
	for _, path := range slices.Concat(paths, top) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[path] = string(text)
	}
	return pages
}

func TestCommandsAreFound(t *testing.T) {
	const page = "Run `go run ./bench`, and no `go test`:\n\n" +
		"    go test ./a -run 'B|C' # why\n    no command\n\n```sh\ncd x\n```\n" +
		"| `go test ./c -v` | `DEL x` |\n"
	require.Equal(t, []string{"go run ./bench", "go test ./a -run 'B|C'", "cd x", "go test ./c -v"}, commandsOf(page))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var code = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Each block of Go on a page is a whole file with its imports and types, so it compiles as it is pasted. All blocks are
// files of one package, which the workspace has in memory only, and testdata/pages_test.go runs them.
func TestCodeOfThePagesRuns(t *testing.T) {
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	tests, err := filepath.Abs(filepath.Join("testdata", "pages_test.go"))
	require.NoError(t, err)
	folder, in := t.TempDir(), filepath.Join(top, "examples", "recipes", "page")
	replaced := map[string]string{filepath.Join(in, "pages_test.go"): tests}
	for path, page := range documents(t) {
		for _, at := range code.FindAllStringSubmatchIndex(page, -1) {
			block := page[at[2]:at[3]]
			if strings.HasPrefix(block, "package main\n") { // TestProgramOfTheReadme runs it
				continue
			}
			formatted, err := format.Source([]byte("package page\n\n" + block))
			require.NoError(t, err, "%s: %s", path, block)
			require.Equal(t, "package page\n\n"+block, string(formatted), path)
			file := fmt.Sprintf("block%d_test.go", len(replaced))
			line := strings.Count(page[:at[2]], "\n") + 1
			text := fmt.Sprintf("package page\n\n//line %s:%d\n%s", filepath.Base(path), line, block)
			require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
			replaced[filepath.Join(in, file)] = filepath.Join(folder, file)
		}
	}
	require.Greater(t, len(replaced), 30)
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	overlay := filepath.Join(folder, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	program := filepath.Join(folder, "run") // its package has no folder on the disk to run in
	shell(t, root, "go test -vet=off -c -o "+program+" -overlay "+overlay+" ./examples/recipes/page")
	require.Contains(t, shell(t, folder, program+" -test.v"), "\n--- PASS: TestReadme ")
}

// The first block of the README is a whole program of at most 25 lines, and runs as it is pasted: only its address is
// another one here. Without a server it says so, and ends.
func TestProgramOfTheReadme(t *testing.T) {
	readme := documents(t)[filepath.Join(root, "README.md")]
	before, _, _ := strings.Cut(readme, "```go")
	require.Less(t, len(strings.Fields(before)), 110)
	require.LessOrEqual(t, len(strings.Fields(readme)), 1300)
	program := code.FindStringSubmatch(readme)[1]
	require.LessOrEqual(t, strings.Count(program, "\n"), 25)
	formatted, err := format.Source([]byte(program))
	require.NoError(t, err)
	require.Equal(t, program, string(formatted))

	folder := t.TempDir()
	server := miniredis.RunT(t)
	for address, says := range map[string]string{
		server.Addr(): "no other process is here\n", "127.0.0.1:1": "connection refused",
	} {
		require.Equal(t, 1, strings.Count(program, "localhost:6379"))
		text := strings.Replace(program, "localhost:6379", address, 1)
		file := filepath.Join(folder, "main.go")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Contains(t, shell(t, root, "go run "+file), says)
	}
}
