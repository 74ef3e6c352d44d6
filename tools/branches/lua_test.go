package branches_test

import (
	"fmt"
	"regexp"
	"strings"
)

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

// instrument returns the text with a call at the beginning of each branch, in the same lines, and the branches. The
// calls are numbered from first on.
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
