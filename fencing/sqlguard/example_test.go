package sqlguard_test

import (
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// For a migration.
func ExampleGuard_Schema() {
	guard, err := sqlguard.New(sqlguard.PostgreSQL, sqlguard.WithTable("locks.guard"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(guard.Schema())
	// Output:
	// CREATE TABLE IF NOT EXISTS "locks"."guard" (
	// 	resource  BYTEA  NOT NULL PRIMARY KEY,
	// 	max_write BIGINT NOT NULL,
	// 	max_read  BIGINT NOT NULL
	// ) WITH (fillfactor = 50)
}

// For a handle that is not one of database/sql, such as a pgx.Batch: if the fence is refused, the statement fails, and
// so do the statements after it.
func ExampleGuard_Statement() {
	guard, err := sqlguard.New(sqlguard.PostgreSQL)
	if err != nil {
		fmt.Println(err)
		return
	}
	query, args, err := guard.Statement(fencing.Fence{Resource: "accounts/7", Token: 42, Mode: fencing.Write})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(query)
	fmt.Printf("%s %d\n", args...)
	// Output:
	// WITH claim AS (
	// INSERT INTO "fencelock_guard" AS guard (resource, max_write, max_read) VALUES ($1, $2, 0)
	// ON CONFLICT (resource) DO UPDATE SET max_write = excluded.max_write
	// WHERE guard.max_write <= excluded.max_write AND guard.max_read <= excluded.max_write
	// RETURNING 1)
	// SELECT CASE count(*)
	// WHEN 0 THEN CAST('fencelock stale token, rows that it changed ' || count(*) AS BIGINT) ELSE 1 END FROM claim
	// accounts/7 42
}

func ExampleWithTable() {
	_, err := sqlguard.New(sqlguard.MySQL, sqlguard.WithTable("guard; DROP TABLE users"))
	fmt.Println(errors.Is(err, sqlguard.ErrTable))
	// Output: true
}
