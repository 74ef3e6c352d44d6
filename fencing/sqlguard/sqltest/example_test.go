package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// open returns a new SQLite database, in memory, with a guard table and the
// statements given.
func open(statements ...string) (*sql.DB, *sqlguard.Guard, func()) {
	db, err := sql.Open("sqlite", ":memory:")
	must(err)
	db.SetMaxOpenConns(1) // each connection has a database of its own
	guard, err := sqlguard.New(sqlguard.SQLite)
	must(err)
	must(guard.Create(context.Background(), db))
	for _, statement := range statements {
		_, err := db.Exec(statement)
		must(err)
	}
	return db, guard, func() { must(db.Close()) }
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// held is the context of a lease, as its Context method returns it.
func held(f fencing.Fence) context.Context { return fencing.NewContext(context.Background(), f) }

// The guard table. The work asks the context for the fence; nobody passes a token.
func Example_guardTable() {
	db, guard, end := open(`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER)`,
		`INSERT INTO accounts VALUES (7, 100)`)
	defer end()

	pay := func(ctx context.Context, amount int) error {
		fence, err := fencing.Require(ctx, "accounts/7")
		if err != nil {
			return err
		}
		return guard.Do(ctx, db, fence, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - ?1 WHERE id = 7`, amount)
			return err
		})
	}

	fmt.Println(pay(held(write("accounts/7", 34)), 10)) // the newer holder
	fmt.Println(pay(held(write("accounts/7", 33)), 10)) // one that was paused
	fmt.Println(pay(context.Background(), 10))          // one that never locked
	// Output:
	// <nil>
	// fencing: stale token: "accounts/7" has seen 34, got 33
	// fencing: no token for "accounts/7"
}

// A transaction of your own: the claim is its first statement.
func Example_claim() {
	db, guard, end := open(`CREATE TABLE log (entry TEXT)`)
	defer end()
	ctx := context.Background()

	tx, err := db.BeginTx(ctx, nil)
	must(err)
	defer func() { _ = tx.Rollback() }()
	if err := guard.Claim(ctx, tx, write("log", 5)); err != nil {
		fmt.Println(err) // and the transaction is rolled back
		return
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO log VALUES ('five was here')`)
	must(err)
	must(tx.Commit())

	fmt.Println(guard.Claim(ctx, db, write("log", 4)))
	// Output: fencing: stale token: "log" has seen 5, got 4
}

// A reader stores what it derived from a read, unless that is outdated by now.
func Example_derived() {
	db, guard, end := open(`CREATE TABLE cache (name TEXT PRIMARY KEY, total INTEGER)`)
	defer end()
	ctx := context.Background()

	fill := func(reader fencing.Fence, total int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := guard.Derive(ctx, tx, reader); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO cache VALUES ('total', ?1)`, total); err != nil {
			return err
		}
		return tx.Commit()
	}

	// Readers 10 and 11 have read; then 12 wrote; then 11 fills the cache.
	fmt.Println(fill(read("orders", 10), 500))
	must(guard.Do(ctx, db, write("orders", 12), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM cache`)
		return err
	}))
	fmt.Println(fill(read("orders", 11), 500))
	// Output:
	// <nil>
	// fencing: stale token: "orders" has seen 12, got 11
}

// The token in the row itself: no statement more than without it.
func Example_fenceColumn() {
	db, _, end := open(`CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0)`,
		`INSERT INTO accounts (id, balance) VALUES (7, 100)`)
	defer end()
	ctx := context.Background()

	set := func(id, balance int, f fencing.Fence) error {
		result, err := db.ExecContext(ctx,
			`UPDATE accounts SET balance = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2`, balance, f.Token, id)
		if err != nil {
			return err
		}
		return sqlguard.SQLite.CheckUpdate(ctx, db, f, result, `SELECT fence FROM accounts WHERE id = ?1`, id)
	}

	fmt.Println(set(7, 90, write("accounts/7", 34)))
	fmt.Println(set(7, 80, write("accounts/7", 33)))
	fmt.Println(errors.Is(set(8, 80, write("accounts/8", 35)), sqlguard.ErrNoRow))
	// Output:
	// <nil>
	// fencing: stale token: "accounts/7" has seen 34, got 33
	// true
}

// The same for a row that may not exist yet.
func Example_upsert() {
	db, _, end := open(`CREATE TABLE profiles (id TEXT PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)`)
	defer end()
	ctx := context.Background()

	put := func(id, body string, f fencing.Fence) error {
		result, err := db.ExecContext(ctx, `
			INSERT INTO profiles (id, body, fence) VALUES (?1, ?2, ?3)
			ON CONFLICT (id) DO UPDATE SET body = excluded.body, fence = excluded.fence
			WHERE profiles.fence <= excluded.fence`, id, body, f.Token)
		if err != nil {
			return err
		}
		return sqlguard.SQLite.CheckUpsert(ctx, db, f, result, `SELECT fence FROM profiles WHERE id = ?1`, id)
	}

	fmt.Println(put("ann", "new", write("profiles/ann", 9)))
	fmt.Println(put("ann", "old", write("profiles/ann", 8)))
	// Output:
	// <nil>
	// fencing: stale token: "profiles/ann" has seen 9, got 8
}
