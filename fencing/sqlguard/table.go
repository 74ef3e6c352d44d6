package sqlguard

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultTable is the guard table's name unless [WithTable] gives another.
const DefaultTable = "fencelock_guard"

// 63 bytes is PostgreSQL's limit, which cuts longer names without an error;
// MySQL's is 64. Lower case only, because a quoted name with capitals is another
// table than the same name unquoted in PostgreSQL, and on some file systems only
// in MySQL.
var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$`)

// quoteTable returns name as it stands in a statement.
func quoteTable(d Dialect, name string) (string, error) {
	if !tableName.MatchString(name) {
		const rule = "want [schema.]table, each of a-z, 0-9 and _, not beginning with a digit, at most 63 bytes"
		return "", fmt.Errorf("%w %.80q: %s", ErrTable, name, rule)
	}
	quote := `"`
	if d == MySQL {
		quote = "`"
	}
	return quote + strings.ReplaceAll(name, ".", quote+"."+quote) + quote, nil
}
