package sqlguard

// statements are everything that a Guard sends, but for the savepoint.
type statements struct {
	claimRead, claimWrite, derive, registers statement
	// claimWriteBounded is claimWrite that also ends the transaction when it is idle for too long; only PostgreSQL can.
	claimWriteBounded statement
}

func newStatements(d Dialect, table string) statements {
	texts := [...]string{conflictClaimRead, conflictClaimWrite, conflictDerive, conflictClaimWrite}
	switch d {
	case PostgreSQL:
		texts[3] = boundedClaimWrite
	case MySQL:
		texts = [...]string{duplicateClaimRead, duplicateClaimWrite, duplicateDerive, duplicateClaimWrite}
	}
	return statements{
		claimRead:         compile(d, table, texts[0]),
		claimWrite:        compile(d, table, texts[1]),
		derive:            compile(d, table, texts[2]),
		claimWriteBounded: compile(d, table, texts[3]),
		registers:         compile(d, table, selectRegisters),
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
` + raiseWrite

	raiseWrite = `ON CONFLICT (resource) DO UPDATE SET max_write = excluded.max_write
WHERE guard.max_write <= excluded.max_write AND guard.max_read <= excluded.max_write`

	// It writes only to lock the row, or to make one that can be locked.
	conflictDerive = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, 0)
ON CONFLICT (resource) DO UPDATE SET max_read = guard.max_read
WHERE guard.max_write <= :token`
)

// A statement more would cost a round trip, so the claim itself sets the limit, for its transaction only (the third
// argument of set_config). A limit that is there already and is shorter stays; 0 is none.
const boundedClaimWrite = `INSERT INTO {table} AS guard (resource, max_write, max_read)
SELECT :resource::bytea, :token::bigint, 0 FROM set_config('idle_in_transaction_session_timeout', (
	SELECT CASE WHEN own BETWEEN 1 AND :idle::bigint THEN own ELSE :idle::bigint END::text
	FROM (SELECT (extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint
		AS own) AS limits
), true)
` + raiseWrite

// MySQL's number of rows affected does not tell a refusal from an equal token: 0
// for both, or 1 for both where the client asks for found rows. So the statement
// answers with the register that decides: LAST_INSERT_ID(x) returns x and puts it
// into the reply as the insert id. One is added, to a register of a new row too,
// so that an insert id of 0 is no verdict at all.
//
// The value of LAST_INSERT_ID(x) has to be stored or compared with something that
// the server knows only when it executes: MySQL 9 does not evaluate what it can
// decide before. The lock of the row is held in either case.
const (
	duplicateClaimRead = `INSERT INTO {table} (resource, max_write, max_read)
VALUES (:resource, LAST_INSERT_ID(1) - 1, :token)
ON DUPLICATE KEY UPDATE
max_read = IF(LAST_INSERT_ID(max_write + 1) <= :token + 1, GREATEST(max_read, :token), max_read)`

	duplicateClaimWrite = `INSERT INTO {table} (resource, max_write, max_read)
VALUES (:resource, :token, LAST_INSERT_ID(1) - 1)
ON DUPLICATE KEY UPDATE
max_write = IF(LAST_INSERT_ID(GREATEST(max_write, max_read) + 1) <= :token + 1, :token, max_write)`

	duplicateDerive = `INSERT INTO {table} (resource, max_write, max_read)
VALUES (:resource, LAST_INSERT_ID(1) - 1, 0)
ON DUPLICATE KEY UPDATE max_write = LAST_INSERT_ID(max_write + 1) - 1`
)
