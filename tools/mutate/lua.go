package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
)

var (
	luaCondition = regexp.MustCompile(`^(\s*(?:if|elseif|while) )(.*?)( (?:then|do)\b.*)$`)
	luaStatement = regexp.MustCompile(`^\s*(?:[\w.\[\]#+ 1-9]+(?:, [\w.\[\]#+ 1-9]+)* = .+|[\w.]+\(.*\))$`)
	luaKeyword   = regexp.MustCompile(`^\s*(?:local|return|function|if|for|else|elseif|while|until)\b`)
	luaOpen      = regexp.MustCompile(`(?:[,=({+*/-]|\.\.|\band|\bor|\bnot|\bfunction\b.*)$`)
	luaGoesOn    = regexp.MustCompile(`^\s*(?:and|or|\.\.|[-+*/)},])`)
	luaString    = regexp.MustCompile(`'[^']*'`)
	luaNumber    = regexp.MustCompile(`[^\w.\[%]([1-9]\d*)\b`)
	luaCompare   = regexp.MustCompile(` (<=?|>=?) `)
)

// mutateLua appends the mutants of a script. Each changes one line.
func mutateLua(file, path string, all *[]mutant) error {
	source, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(source), "\n")
	for i, line := range lines {
		add := func(change, text string) {
			*all = append(*all, mutant{
				id: len(*all), file: path, line: i + 1, change: change + ": " + strings.TrimSpace(line), text: text,
			})
		}
		code, comment, _ := strings.Cut(line, "--")
		code = strings.TrimRight(code, " ")
		if strings.Contains(comment, "include: ") || code == "" {
			continue
		}
		if c := luaCondition.FindStringSubmatch(code); c != nil {
			add("negated", c[1]+"not ("+c[2]+")"+c[3])
		}
		next := ""
		if i+1 < len(lines) {
			next = lines[i+1]
		}
		if luaStatement.MatchString(code) && !luaKeyword.MatchString(code) && !luaOpen.MatchString(code) &&
			!luaGoesOn.MatchString(next) && balanced(code) {
			add("deleted", "")
		}
		// Texts keep their length, and have neither numbers nor comparisons.
		bare := luaString.ReplaceAllStringFunc(code, func(s string) string { return strings.Repeat("'", len(s)) })
		for _, at := range luaNumber.FindAllStringSubmatchIndex(bare, -1) {
			n, err := strconv.Atoi(code[at[2]:at[3]])
			if err == nil && n != 1000000 {
				add("off by one", code[:at[2]]+strconv.Itoa(n+1)+code[at[3]:])
			}
		}
		for _, at := range luaCompare.FindAllStringSubmatchIndex(bare, -1) {
			other := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[code[at[2]:at[3]]]
			add("off by one", code[:at[2]]+other+code[at[3]:])
		}
	}
	return nil
}

func balanced(code string) bool {
	bare := luaString.ReplaceAllString(code, "")
	for _, pair := range []string{"()", "{}"} {
		if strings.Count(bare, pair[:1]) != strings.Count(bare, pair[1:]) {
			return false
		}
	}
	return true
}
