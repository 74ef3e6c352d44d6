package sqlguard

import (
	"errors"

	"github.com/seed74116694/fencelock/fencing"
)

var (
	// ErrOption says that [New] was given a dialect that does not exist or a nil option, [Guard.Do] nil work, that a
	// Guard was not made by New, or that a handle rewrites statements, see [Tx]. Nothing was sent.
	ErrOption = errors.New("sqlguard: invalid option")

	// ErrTable says that a table's name is refused, and by which rule.
	ErrTable = errors.New("sqlguard: invalid table name")

	// ErrNoRow says that a fenced statement changed no row, and that no newer token is in the row now: there is no such
	// row, or another condition of the statement was not met. Nothing was written. A row that a newer holder has deleted
	// looks the same, so it is no leave to insert one; package documentation, "Fence column", says what helps.
	ErrNoRow = errors.New("sqlguard: no such row")

	// ErrNoVerdict says that the database's answer does not tell whether the access was accepted. It counts as refused:
	// roll back.
	ErrNoVerdict = errors.New("sqlguard: the answer is no verdict")

	// ErrClaimNotVisible says that the transaction of a read does not show the claim that was committed before it. It
	// runs on a replica that lags behind, or somebody deleted the guard row. The work did not run; read from the primary,
	// or try again.
	ErrClaimNotVisible = errors.New("sqlguard: the transaction does not show the claim")

	// ErrTransactionEnded says that the transaction which held the check ended while the work was under way: by a
	// conflict whose error the work dropped, by a statement that commits (DDL in MySQL), by a COMMIT or ROLLBACK of the
	// work's own, or by another user of the same *sql.Conn. What the work wrote before that moment is rolled back or
	// committed as a whole; what it wrote after it may be committed, unchecked.
	ErrTransactionEnded = errors.New("sqlguard: the transaction ended inside the work")

	// ErrInTransaction says that [Guard.Do] was given a connection, such as a *sql.Conn, on which a transaction is under
	// way: that of another Do or one of the caller's own. A second one would end it. The work did not run, and the
	// transaction goes on. Use that transaction, or another connection.
	ErrInTransaction = errors.New("sqlguard: the connection is in a transaction")

	// ErrReadOnly says that the work of a read has written, in SQLite; the other databases refuse the statement with an
	// error of their own. What it wrote is rolled back.
	ErrReadOnly = errors.New("sqlguard: a write under a read fence")

	// ErrNested says that a resource was claimed inside a write of the same resource under [Guard.Do], in another
	// transaction: it would wait for itself. Nothing was sent. Use the transaction of the write. Two databases whose guard
	// tables have one name are taken for one; for the second, use the context that Do was given, not that of its work.
	// It is the same value as [fencing.ErrNested].
	ErrNested = fencing.ErrNested
)
