package sqlguard

import (
	"context"
	"fmt"
	"strings"
)

// The resource is bytes in every dialect: a text column would compare by its collation, which may fold case, accents
// and trailing spaces, and PostgreSQL's cannot hold NUL. 512 bytes fit every index, 767 bytes being the least that
// InnoDB allows.
var schemas = map[Dialect]string{
	// The free half of each page keeps updates of a row within it, without touching the index.
	PostgreSQL: `CREATE TABLE IF NOT EXISTS {table} (
	resource  BYTEA  NOT NULL PRIMARY KEY,
	max_write BIGINT NOT NULL,
	max_read  BIGINT NOT NULL
) WITH (fillfactor = 50)`,

	MySQL: `CREATE TABLE IF NOT EXISTS {table} (
	resource  VARBINARY(512) NOT NULL PRIMARY KEY,
	max_write BIGINT NOT NULL,
	max_read  BIGINT NOT NULL
) ENGINE = InnoDB`,

	SQLite: `CREATE TABLE IF NOT EXISTS {table} (
	resource  BLOB    NOT NULL PRIMARY KEY,
	max_write INTEGER NOT NULL,
	max_read  INTEGER NOT NULL
) WITHOUT ROWID`,
}

// Schema returns the statement that creates the guard table unless it exists. Its columns are resource (the name's
// bytes), max_write and max_read.
//
// A row must stay as long as a holder may still present an old token for its resource, and must be restored from an
// older backup only together with the data. docs/fencing.md has the statement that deletes older rows.
func (g *Guard) Schema() string {
	return strings.ReplaceAll(schemas[g.dialect], "{table}", g.table)
}

// Create runs [Guard.Schema]. Processes that start together should not all call it: PostgreSQL may report a duplicate
// to one of them.
func (g *Guard) Create(ctx context.Context, db Tx) error {
	if err := g.refuseZero(); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, g.Schema()); err != nil {
		return fmt.Errorf("sqlguard: create table %s: %w", g.table, err)
	}
	return nil
}
