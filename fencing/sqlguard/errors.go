package sqlguard

import (
	"errors"

	"github.com/seed74116694/fencelock/fencing"
)

var (
	// ErrOption reports that [New] was given a dialect that does not exist or a nil option, [Guard.Do] nil work,
	// [Guard.DoAll] no fence or two of one resource, that a Guard was not made by New, or that a handle rewrites
	// statements, see [Tx]. Nothing was sent.
	ErrOption = errors.New("sqlguard: invalid option")

	// ErrTable reports that a table's name is refused, and by which rule.
	ErrTable = errors.New("sqlguard: invalid table name")

	// ErrNoRow reports that a fenced statement changed no row, and that no newer token is in the row now: there is no
	// such row, or another condition of the statement was not met. Nothing was written. A row that a newer holder has
	// deleted looks the same, so ErrNoRow does not permit inserting one; the package documentation, "Fence column",
	// describes the solution.
	ErrNoRow = errors.New("sqlguard: no such row")

	// ErrNoVerdict reports that the database's answer does not show whether the access was accepted. It counts as
	// refused: roll back.
	ErrNoVerdict = errors.New("sqlguard: the answer is no verdict")

	// ErrClaimNotVisible reports that the transaction of a read does not show the claim that was committed before it.
	// It runs on a replica that lags behind, or the guard row was deleted. The work did not run; read from the primary,
	// or try again.
	ErrClaimNotVisible = errors.New("sqlguard: the transaction does not show the claim")

	// ErrTransactionEnded reports that the transaction which held the check ended during the work: by an error that ends
	// transactions, such as a deadlock in MySQL, after which the work went on; by a statement that commits (DDL in
	// MySQL); by a COMMIT, a ROLLBACK or a call of Commit or Rollback by the work; or by another user of the same
	// *sql.Conn. The work's writes before that moment are rolled back or committed as a whole; its later writes may be
	// committed, unchecked. An error that the work has returned is matched too. If ctx has ended as well, only a call of
	// Commit or Rollback is noticed.
	ErrTransactionEnded = errors.New("sqlguard: the transaction ended inside the work")

	// ErrInTransaction reports that [Guard.Do] was given a connection, such as a *sql.Conn, on which a transaction is
	// under way, of another Do or of the caller. A second one would end it. The work did not run, and the transaction
	// goes on. Use that transaction, or another connection.
	ErrInTransaction = errors.New("sqlguard: the connection is in a transaction")

	// ErrReadOnly reports that the work of a read has written, in SQLite; the other databases refuse the statement with
	// an error of their own. Its writes are rolled back. To attach a database counts as a write.
	ErrReadOnly = errors.New("sqlguard: a write under a read fence")

	// ErrNested reports that a resource was claimed inside a write of the same resource under [Guard.Do], in another
	// transaction: it would wait for itself. Nothing was sent. Use the transaction of the write. Two databases with
	// guard tables of one name are taken for one; for the second, use the context that Do was given, not the context of
	// its work. It is the same value as [fencing.ErrNested].
	ErrNested = fencing.ErrNested
)
