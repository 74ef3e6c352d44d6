package sqlguard

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
)

// statement is a text with the dialect's placeholders, and which argument each
// of them stands for.
type statement struct {
	text  string
	order []string
}

func (s statement) args(f fencing.Fence) []any {
	args := make([]any, len(s.order))
	for i, name := range s.order {
		switch name {
		case ":resource":
			args[i] = []byte(f.Resource)
		case ":token":
			args[i] = int64(f.Token)
		}
	}
	return args
}

var parameter = regexp.MustCompile(`:(resource|token)\b`)

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

// statements are everything that a Guard sends.
type statements struct {
	claimRead, claimWrite, derive, registers statement
}

func newStatements(d Dialect, table string) statements {
	texts := [...]string{conflictClaimRead, conflictClaimWrite, conflictDerive}
	if d == MySQL {
		texts = [...]string{duplicateClaimRead, duplicateClaimWrite, duplicateDerive}
	}
	return statements{
		claimRead:  compile(d, table, texts[0]),
		claimWrite: compile(d, table, texts[1]),
		derive:     compile(d, table, texts[2]),
		registers:  compile(d, table, selectRegisters),
	}
}

const selectRegisters = `SELECT max_write, max_read FROM {table} WHERE resource = :resource`

// In PostgreSQL and SQLite an upsert whose WHERE does not hold changes no row, and
// one that writes the value that is there already does: the number of rows
// affected is the verdict. Waiting for another transaction on the row,
// PostgreSQL decides by what that one has committed, at any isolation level, or
// fails with a serialization error.
const (
	conflictClaimRead = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, :token)
ON CONFLICT (resource) DO UPDATE
SET max_read = CASE WHEN guard.max_read < excluded.max_read THEN excluded.max_read ELSE guard.max_read END
WHERE guard.max_write <= excluded.max_read`

	conflictClaimWrite = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, :token, 0)
ON CONFLICT (resource) DO UPDATE SET max_write = excluded.max_write
WHERE guard.max_write <= excluded.max_write AND guard.max_read <= excluded.max_write`

	// It writes only to lock the row, or to make one that can be locked.
	conflictDerive = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, 0)
ON CONFLICT (resource) DO UPDATE SET max_read = guard.max_read
WHERE guard.max_write <= :token`
)

// MySQL's number of rows affected does not tell a refusal from an equal token: 0
// for both, or 1 for both where the client asks for found rows. So the statement
// answers with the registers themselves: LAST_INSERT_ID(x) returns x and puts it
// into the reply as the insert id, which is 0 when the row is new, as the table
// has no AUTO_INCREMENT. The lock of the row is held in either case.
const (
	duplicateClaimRead = `INSERT INTO {table} (resource, max_write, max_read) VALUES (:resource, 0, :token)
ON DUPLICATE KEY UPDATE
max_read = IF(LAST_INSERT_ID(max_write) <= :token, GREATEST(max_read, :token), max_read)`

	duplicateClaimWrite = `INSERT INTO {table} (resource, max_write, max_read) VALUES (:resource, :token, 0)
ON DUPLICATE KEY UPDATE
max_write = IF(LAST_INSERT_ID(GREATEST(max_write, max_read)) <= :token, :token, max_write)`

	duplicateDerive = `INSERT INTO {table} (resource, max_write, max_read) VALUES (:resource, 0, 0)
ON DUPLICATE KEY UPDATE max_read = IF(LAST_INSERT_ID(max_write) IS NULL, 0, max_read)`
)
