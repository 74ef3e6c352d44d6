package repo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Comments name things by the field's nouns: a waiter, a master, a caller. These bounds are per 1,000 words of a
// folder's comments, tests left out.
const (
	maxPeople = 3 // pronouns for people
	maxTurns  = 6 // of all kinds below
	fewWords  = 300

	maxSentence = 30 // words of a page's sentence

	maxOption = 60 // words of the comment of one option; a page has the rest
)

var (
	people = regexp.MustCompile(`(?i)\b(who|whom|whoever|whose|nobody|somebody|anybody|everybody|others)\b`)
	turns  = []*regexp.Regexp{
		people,
		regexp.MustCompile(`(?i)\b(that of|those of|those who|those that|the one who|the one that|one who|one that)\b`),
		regexp.MustCompile(`(?i)\b(whatever|whichever)\b`),
		regexp.MustCompile(`(?i)\b(beside|meanwhile|yet)\b`),
		regexp.MustCompile(`(?i)\b(tell|tells|told|telling)\b`),
	}
	words = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)
)

func TestCommentsArePlain(t *testing.T) {
	comments := map[string]*strings.Builder{}
	add := func(path, text string) {
		folder := filepath.ToSlash(filepath.Dir(path)) + filepath.Ext(path)
		if comments[folder] == nil {
			comments[folder] = &strings.Builder{}
		}
		comments[folder].WriteString(text)
	}
	for path, text := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			add(path, goComments(t, text))
		}
	}
	for path, text := range files(t, ".lua") {
		add(path, luaComments(text))
	}
	for folder, text := range comments {
		all, ofPeople := turnsOfPhrase(text.String())
		n := len(words.FindAllString(text.String(), -1))
		per := max(n, fewWords) // a folder with few comments may have one or two
		require.LessOrEqual(t, 1000*all, maxTurns*per, "%s: %d turns of phrase in %d words", folder, all, n)
		require.LessOrEqual(t, 1000*ofPeople, maxPeople*per, "%s: %d pronouns in %d words", folder, ofPeople, n)
	}
}

// Pages have the same bounds, and short sentences with a verb. Code and tables have no sentences.
func TestPagesArePlain(t *testing.T) {
	for path, text := range pages(t) {
		prose := withoutCode.ReplaceAllString(string(text), "")
		all, ofPeople := turnsOfPhrase(prose)
		n := len(words.FindAllString(prose, -1))
		require.LessOrEqual(t, 1000*all, maxTurns*n, "%s: %d turns of phrase in %d words", path, all, n)
		require.LessOrEqual(t, 1000*ofPeople, maxPeople*n, "%s: %d pronouns in %d words", path, ofPeople, n)
		require.Empty(t, longSentences(prose), path)
		require.Empty(t, withoutVerb(prose), path)
	}
}

var (
	withoutCode   = regexp.MustCompile("(?ms)^ *```.*?^ *```$|^    [^\n]*$")
	notOfSentence = regexp.MustCompile("(?m)^(?:[|#]|\\[[^]]+\\]: ).*$|\\]\\([^)]*\\)|`[^`]*`")
	paragraph     = regexp.MustCompile(`\n\s*\n|\n\s*(?:- |\d\. )`)
	sentence      = regexp.MustCompile(`([.?!][*)"]*)\s+`)
	boldTitle     = regexp.MustCompile(`^\*\*[^*]+\*\*$`)
)

// sentences returns those of a page's text. One that ends with its paragraph may have no full stop.
func sentences(prose string) (all []string) {
	prose = notOfSentence.ReplaceAllString(prose, "x")
	for _, text := range paragraph.Split(prose, -1) {
		all = append(all, strings.Split(sentence.ReplaceAllString(text+"\n", "$1\x00"), "\x00")...)
	}
	return all
}

func longSentences(prose string) (long []string) {
	for _, s := range sentences(prose) {
		if len(words.FindAllString(s, -1)) > maxSentence {
			long = append(long, s)
		}
	}
	return long
}

// withoutVerb returns what ends like a sentence and has no verb. A label and a title of a list item need none.
func withoutVerb(prose string) (all []string) {
	for _, s := range sentences(prose) {
		s = strings.TrimSpace(strings.TrimPrefix(s, "- "))
		label := strings.Contains(s, ": ") || strings.Contains(s, ":\n") || boldTitle.MatchString(s)
		if closed := strings.TrimRight(s, `*)"`); !label && strings.HasSuffix(closed, ".") &&
			len(words.FindAllString(s, -1)) > 1 && !verb.MatchString(s) {
			all = append(all, s)
		}
	}
	return all
}

// verb matches the verbs that the pages use, also where the same word is a noun. Add what is missing.
var verb = regexp.MustCompile(`(?i)\b(?:` + strings.Join(strings.Fields(`
abstain accept acknowledge add agree allow am answer appl(?:y|ies|ied) archive are aren't arrive ask assert assume
avoid await bear become began begin behave belong block bound break bring broke call came can can't cannot
carr(?:y|ies|ied) catch cause change check choose claim close come commit compare compute concern confirm connect
consider contain continue contradict cop(?:y|ies|ied) cost could count cover create cut deal decide delete deliver
den(?:y|ies|ied) depend derive describe detect determine dial did die differ disappear discard do does doesn't don't
draw drop edit enable end ensure enter evict examine exceed exclude exist expect expire explain extend fail fall fence
fill find finish fit fix follow force forget form found gave get give go got grant grow guarantee guard had hand
handle happen has have hear held help hide hold hope ignore imitate implement import include increase inherit insert
inspect install invent is isn't join judge keep kept kill knew know last lead learn leave left let limit linger listen
live lock look lose lost made maintain make mark match matter may mean measure meet mend merge met miss mix model move
must name need notice obtain occup(?:y|ies|ied) open order outlive overtake overwrite own paid pass paste pause pay
perform permit pick place point prefer prepare present print produce promote propose protect prove provide publish
pull push put raise ran reach read receive reduce refuse refute register reject rel(?:y|ies|ied) release remain
remember remove renew repair repeat repl(?:y|ies|ied) replace report require resolve rest restore resume
retr(?:y|ies|ied) return reuse rewrite roll run said save saw say search see select send sent separate serve set
settle share should show skip sleep solve speak spend split spread stand start stay step stood stop store strike strip
succeed suffice suit support survive switch take talk tell test think throw tie took tr(?:y|ies|ied) trade travel
trigger trust turn undo use vary verify visit vote wait wake want warn was watch went were will win work would wrap
write wrote yield`), "|") + `)(?:s|es|d|[a-z]?ed)?\b`)

// An option says what it does, its bounds and its default, and names the page that has the rest.
func TestCommentsOfOptionsAreShort(t *testing.T) {
	for path, text := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for option, n := range wordsOfOptions(t, text) {
			require.LessOrEqual(t, n, maxOption, "%s: %s: words of its comment", path, option)
		}
	}
}

// wordsOfOptions returns how many words the comments of a file's exported functions With... have.
func wordsOfOptions(t *testing.T, text []byte) map[string]int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	counts := map[string]int{}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "With") {
			counts[f.Name.Name] = len(strings.Fields(f.Doc.Text()))
		}
	}
	return counts
}

func TestLanguageRulesNoticeWhatBreaksThem(t *testing.T) {
	text := "// Whoever waits is told of those who came.\npackage p // somebody\n\nvar x = \"whoever\"\n"
	all, ofPeople := turnsOfPhrase(goComments(t, []byte(text)))
	require.Equal(t, 5, all) // "those who" counts as a phrase and as a pronoun
	require.Equal(t, 3, ofPeople)
	option := []byte("package p\n\n// WithX sets x: 5.\nfunc WithX() {}\n\n// W of one.\nfunc (T) WithY() {}\n")
	require.Equal(t, map[string]int{"WithX": 4}, wordsOfOptions(t, option))
	long := strings.Repeat("word ", maxSentence)
	require.Empty(t, longSentences("One. "+long+"\n\n- "+long+".\n| "+long+long+"|\n"))
	require.Len(t, longSentences("One "+long+". Two."), 1)
	short := "- **A title.** `Do` waits for it. Two\nrows of the table (`1.3`).\n- `x`: a label.\n\nThe rules:\n\nNo page."
	require.Equal(t, []string{"Two\nrows of the table (x).", "No page."}, withoutVerb(short))
	require.Equal(t, " whoever\n", luaComments([]byte("local x = 1 -- whoever\nlocal y = 2\n")))
}

func goComments(t *testing.T, text []byte) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	var all strings.Builder
	for _, group := range file.Comments {
		all.WriteString(group.Text() + "\n")
	}
	return all.String()
}

func luaComments(text []byte) string {
	var all strings.Builder
	for line := range strings.Lines(string(text)) {
		if _, comment, ok := strings.Cut(line, "--"); ok {
			all.WriteString(comment)
		}
	}
	return all.String()
}

func turnsOfPhrase(text string) (all, ofPeople int) {
	for _, turn := range turns {
		all += len(turn.FindAllString(text, -1))
	}
	return all, len(people.FindAllString(text, -1))
}
