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
	luaOperator  = regexp.MustCompile(`(?:^|\s)(?:and|or)(?:\s|$)`)
	luaEnds      = regexp.MustCompile(`\b(?:and|or|if|elseif|while|until|return|then|do|else|end)\b| = |,`)
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
			if text == (*all)[len(*all)-1].text && text != "" {
				return // it drops an operand between two operators
			}
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
		for _, at := range luaOperator.FindAllStringIndex(bare, -1) {
			if left := operand(bare, at[0]-1, -1); left < at[0] {
				add("dropped "+code[left:at[0]], code[:left]+" "+code[at[1]:])
			}
			if right := operand(bare, at[1], 1); right > at[1] {
				add("dropped "+code[at[1]:right], code[:at[0]]+" "+code[right:])
			}
		}
		for _, at := range luaCompare.FindAllStringSubmatchIndex(bare, -1) {
			other := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[code[at[2]:at[3]]]
			add("off by one", code[:at[2]]+other+code[at[3]:])
		}
	}
	return nil
}

// operand returns where the operand ends that begins or, backwards, ends at a place: that place if it is not whole.
func operand(bare string, place, step int) int {
	bare = luaEnds.ReplaceAllStringFunc(bare, func(s string) string { return strings.Repeat(",", len(s)) })
	depth, at := 0, place
	for ; at >= 0 && at < len(bare) && (depth > 0 || bare[at] != ','); at += step {
		if strings.IndexByte("({[", bare[at]) >= 0 {
			depth += step
		} else if strings.IndexByte(")}]", bare[at]) >= 0 {
			depth -= step
		}
		if depth < 0 {
			break
		}
	}
	if step < 0 {
		place, at = place+1, at+1
	}
	if depth > 0 || strings.TrimSpace(bare[min(at, place):max(at, place)]) == "" {
		return place
	}
	return at
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
