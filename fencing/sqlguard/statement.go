package sqlguard

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// statement is a text with the dialect's placeholders, and the argument that each of them stands for.
type statement struct {
	text  string
	order []string
}

// arguments are the values of a statement's placeholders. Only the statements of [Guard.Do] have the last two.
type arguments struct {
	fence fencing.Fence
	idle  time.Duration // how long the transaction may be idle, 0 without a limit
	mark  string
}

// args returns the arguments in the order of the placeholders.
func (s statement) args(with arguments) []any {
	args := make([]any, len(s.order))
	for i, name := range s.order {
		switch name {
		case ":resource":
			args[i] = []byte(with.fence.Resource)
		case ":token":
			args[i] = int64(with.fence.Token)
		case ":idle":
			args[i] = with.idle.Milliseconds()
		case ":mark":
			args[i] = with.mark
		}
	}
	return args
}

var parameter = regexp.MustCompile(`:(resource|token|idle|mark)\b`)

// compile turns named parameters into the dialect's. PostgreSQL and SQLite have
// numbered ones, so each argument is sent once; MySQL's are in the order of the text.
func compile(d Dialect, table, text string) statement {
	var s statement
	numbers := map[string]int{}
	s.text = parameter.ReplaceAllStringFunc(strings.ReplaceAll(text, "{table}", table), func(name string) string {
		if d == MySQL {
			s.order = append(s.order, name)
			return "?"
		}
		if numbers[name] == 0 {
			s.order = append(s.order, name)
			numbers[name] = len(s.order)
		}
		if d == PostgreSQL {
			return fmt.Sprintf("$%d", numbers[name])
		}
		return fmt.Sprintf("?%d", numbers[name])
	})
	return s
}
