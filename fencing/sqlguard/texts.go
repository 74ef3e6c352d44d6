package sqlguard

// statements are all statements of a Guard, except for the ones that mark a transaction.
type statements struct {
	claimRead, claimWrite, derive, registers statement
	// claimSection and recheck are claimWrite and registers inside Do. In PostgreSQL they mark the transaction, and
	// claimSection also bounds how long it may be idle; the other databases have no such limit for a transaction.
	claimSection, recheck statement
}

func newStatements(d Dialect, table string) statements {
	claimRead, claimWrite, derive := conflictClaimRead, conflictClaimWrite, conflictDerive
	claimSection, recheck := conflictClaimWrite, selectRegisters
	switch d {
	case PostgreSQL:
		claimSection, recheck = markingClaimWrite, markingRegisters
	case MySQL:
		claimRead, claimWrite, derive = duplicateClaimRead, duplicateClaimWrite, duplicateDerive
		claimSection = duplicateClaimWrite
	}
	return statements{
		claimRead:    compile(d, table, claimRead),
		claimWrite:   compile(d, table, claimWrite),
		derive:       compile(d, table, derive),
		registers:    compile(d, table, selectRegisters),
		claimSection: compile(d, table, claimSection),
		recheck:      compile(d, table, recheck),
	}
}

const selectRegisters = `SELECT max_write, max_read FROM {table} WHERE resource = :resource`

// In PostgreSQL and SQLite an upsert changes no row if its WHERE does not hold, and it counts a row that had the
// written value already: the number of rows affected is the verdict. PostgreSQL, after waiting for another transaction
// on the row, decides by the values that the other one has committed, at any isolation level, or fails with a
// serialization error.
const (
	conflictClaimRead = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, :token)
ON CONFLICT (resource) DO UPDATE
SET max_read = CASE WHEN guard.max_read < excluded.max_read THEN excluded.max_read ELSE guard.max_read END
WHERE guard.max_write <= excluded.max_read`

	conflictClaimWrite = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, :token, 0)
` + raiseWrite

	raiseWrite = `ON CONFLICT (resource) DO UPDATE SET max_write = excluded.max_write
WHERE guard.max_write <= excluded.max_write AND guard.max_read <= excluded.max_write`

	// It writes only to lock the row, or to insert a row that can be locked.
	conflictDerive = `INSERT INTO {table} AS guard (resource, max_write, max_read) VALUES (:resource, 0, 0)
ON CONFLICT (resource) DO UPDATE SET max_read = guard.max_read
WHERE guard.max_write <= :token`
)

// One more statement would cost a round trip, so the check itself makes the settings that end with its transaction (the
// third argument of set_config). A shorter limit that is set already stays; 0 is none.
const (
	markingClaimWrite = `INSERT INTO {table} AS guard (resource, max_write, max_read)
SELECT :resource::bytea, :token::bigint, 0
FROM set_config('fencelock.mark', :mark::text, true) AS mark, set_config('idle_in_transaction_session_timeout', (
	SELECT CASE WHEN :idle::bigint = 0 OR own BETWEEN 1 AND :idle::bigint THEN own ELSE :idle::bigint END::text
	FROM (SELECT (extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint
		AS own) AS limits
), true) AS idle
` + raiseWrite

	// Without a row there is no mark: such a read is refused.
	markingRegisters = selectRegisters + ` AND set_config('fencelock.mark', :mark::text, true) = :mark::text`
)

// MySQL's number of rows affected does not distinguish a refusal from an equal token: 0 for both, or 1 for both if the
// client asks for found rows. So the statement answers with the register that decides: LAST_INSERT_ID(x) returns x and
// puts it into the reply as the insert id. One is added, also for a new row's register, so that an insert id of 0 is no
// verdict at all.
//
// The value of LAST_INSERT_ID(x) has to be stored, or compared with a value that the server knows only when it
// executes: MySQL 9 does not evaluate a comparison that it can decide before. The lock of the row is held in either
// case.
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
