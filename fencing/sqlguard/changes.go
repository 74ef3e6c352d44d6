package sqlguard

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
)

// changes are the counters that show whether an SQLite connection has written: the changed rows, and, of each database
// but temp, what does not count as a row: the version of the schema and the numbers of the user and of the application.
type changes struct {
	rows     int64
	versions string
}

// These tables are of the main database. The names of the attached ones are in hex, so that they have no commas.
const selectChanges = `SELECT total_changes(), schema_version || '/' || user_version || '/' || application_id,
(SELECT coalesce(group_concat(hex(name)), '') FROM pragma_database_list WHERE name NOT IN ('main', 'temp'))
FROM pragma_schema_version, pragma_user_version, pragma_application_id`

func changesOf(ctx context.Context, tx marked) (seen changes, err error) {
	var attached string
	if err := tx.QueryRowContext(ctx, selectChanges).Scan(&seen.rows, &seen.versions, &attached); err != nil {
		return changes{}, failed("changes of a read", err)
	}
	for name := range strings.SplitSeq(attached, ",") {
		if name == "" {
			continue
		}
		versions, err := versionsOf(ctx, tx, name)
		if err != nil {
			return changes{}, failed("changes of a read", err)
		}
		seen.versions += versions
	}
	return seen, nil
}

// versionsOf are the versions of an attached database, which only the statement PRAGMA has.
func versionsOf(ctx context.Context, tx marked, nameInHex string) (versions string, err error) {
	name, err := hex.DecodeString(nameInHex)
	if err != nil {
		return "", err
	}
	quoted := `"` + strings.ReplaceAll(string(name), `"`, `""`) + `"`
	versions = "," + nameInHex
	for _, pragma := range []string{"schema_version", "user_version", "application_id"} {
		var value int64
		if err := tx.QueryRowContext(ctx, "PRAGMA "+quoted+"."+pragma).Scan(&value); err != nil {
			return "", err
		}
		versions += fmt.Sprint("/", value)
	}
	return versions, nil
}
