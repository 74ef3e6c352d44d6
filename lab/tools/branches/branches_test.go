package branches_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

// Tests reach each branch of each script: the body of an if, an elseif, an else, a loop or a function, and the other
// case of an if without an else. The scripts are built into the tests with a line of the server's log at the beginning
// of each branch, which changes no command, key or reply.
func TestEveryBranchOfTheScriptsIsReached(t *testing.T) {
	if os.Getenv("FENCELOCK_TESTS") != "all" {
		t.Skip("runs the tests of the scripts: only with FENCELOCK_TESTS=all")
	}
	server, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	branches, overlay := overlay(t)
	logs, bin := t.TempDir(), t.TempDir()
	logging := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" --logfile %s/$$\n", server, logs)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "redis-server"), []byte(logging), 0o755))
	// A test that looks at the scripts' own text fails with calls in it. Other places than a server log nothing.
	for _, args := range [][]string{
		{"./scripts", "-skip", "^TestSourcesAreAssembled$|/^fake_time$"},
		{"./internal/test/scriptfuzz", "-run", "^TestCorpus$|^TestRandomSequences$", "-server=redis-server", "-seeds=20"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-overlay", overlay}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FENCELOCK_VALKEY=none", "FENCELOCK_SERVER=")
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	seen := reached(t, logs)
	for number, name := range branches {
		if !seen[number] {
			t.Errorf("no test reaches %s", name)
		}
	}
}

// overlay returns the names of the branches, and the file that has the go command build the scripts that log them.
func overlay(t *testing.T) (branches []string, path string) {
	folder, replaced := t.TempDir(), map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "scripts", "*.lua"))
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		text, found := instrument(string(source), len(branches))
		name := filepath.Base(file)
		for _, what := range found {
			branches = append(branches, name+": "+what)
		}
		original, err := filepath.Abs(file)
		require.NoError(t, err)
		replaced[original] = filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(replaced[original], []byte(text), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	path = filepath.Join(folder, "overlay.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return branches, path
}

// reached returns the numbers of the branches in the servers' logs.
func reached(t *testing.T, logs string) map[int]bool {
	paths, err := filepath.Glob(filepath.Join(logs, "*"))
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if _, number, is := strings.Cut(line, mark); is {
				var n int
				_, err := fmt.Sscan(number, &n)
				require.NoError(t, err)
				seen[n] = true
			}
		}
	}
	return seen
}

func TestBranchesAreFound(t *testing.T) {
	text, found := instrument("local function f(a) -- if\n  if a then return 'end' end\n  for i = 1, 2 do a = i end\n"+
		"  if a == 1 then b() elseif a then c() else d() end\nend\n", 3)
	require.Equal(t, []string{
		"function f(a)", "if a", "not if a", "for i = 1, 2 do", "if a == 1", "elseif a", "else of if a == 1",
	}, found)
	require.Equal(t, 7, strings.Count(text, mark))
	require.Contains(t, text, "f(a)"+call(3)+" -- if\n  if a then"+call(4)+" return 'end' else"+call(5)+"end\n")
	require.Equal(t, 5, strings.Count(text, "\n"), "the lines stay")
}

// mark is what a branch logs, at the level of a server that is always logged. In Lua 5.4 nothing logs.
const mark = "fencelock branch "

func call(number int) string {
	return fmt.Sprintf(" if redis.log then redis.log(redis.LOG_WARNING, '%s%d') end ", mark, number)
}

// token is a part of a Lua text that decides nothing, a word or a sign.
var token = regexp.MustCompile(`--[^\n]*|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\s+|[\d.]+|.`)

// block is an open block of a Lua text.
type block struct {
	word string // that opened it
	cond string // of an if: its conditions so far
	bare bool   // an if without an else so far
}

// writer copies a Lua text and adds calls.
type writer struct {
	out   strings.Builder
	first int
	found []string
	seen  map[string]int
	open  []block
}

// instrument returns the text with a numbered call at the beginning of each branch, in the same lines.
func instrument(source string, first int) (text string, branches []string) {
	w := &writer{first: first, seen: map[string]int{}}
	tokens := token.FindAllString(source, -1)
	for i := 0; i < len(tokens); i++ {
		switch word := tokens[i]; word {
		case "if", "while", "for", "function":
			i = w.opening(tokens, i)
		case "elseif":
			i = w.condition(tokens, i)
		case "else":
			top := &w.open[len(w.open)-1]
			top.bare = false
			w.out.WriteString(word)
			w.branch("else of " + top.cond)
		case "do":
			w.open = append(w.open, block{word: word})
			w.out.WriteString(word)
		case "end":
			top := w.open[len(w.open)-1]
			w.open = w.open[:len(w.open)-1]
			if top.bare {
				w.out.WriteString("else")
				w.branch("not " + top.cond)
			}
			w.out.WriteString(word)
		default:
			w.out.WriteString(word)
		}
	}
	return w.out.String(), w.found
}

// opening copies the beginning of a block, and returns the place of its last token.
func (w *writer) opening(tokens []string, i int) int {
	word := tokens[i]
	if word == "if" {
		w.open = append(w.open, block{word: word, bare: true})
		return w.condition(tokens, i)
	}
	last := map[string]string{"while": "do", "for": "do", "function": ")"}[word]
	begun := i
	for ; tokens[i] != last; i++ {
		w.out.WriteString(tokens[i])
	}
	w.out.WriteString(tokens[i])
	w.open = append(w.open, block{word: word})
	w.branch(words(tokens[begun : i+1]))
	return i
}

// condition copies an if or elseif up to its then, and returns the place of that.
func (w *writer) condition(tokens []string, i int) int {
	begun := i
	for ; tokens[i] != "then"; i++ {
		w.out.WriteString(tokens[i])
	}
	w.out.WriteString(tokens[i])
	what := words(tokens[begun:i])
	top := &w.open[len(w.open)-1]
	if top.cond == "" {
		top.cond = what
	}
	w.branch(what)
	return i
}

// branch adds a call.
func (w *writer) branch(what string) {
	if w.seen[what]++; w.seen[what] > 1 {
		what = fmt.Sprintf("%s (%d)", what, w.seen[what])
	}
	w.out.WriteString(call(w.first + len(w.found)))
	w.found = append(w.found, what)
}

// words joins tokens to one line without comments.
func words(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		if !strings.HasPrefix(t, "--") {
			b.WriteString(t)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
