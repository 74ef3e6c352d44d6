package sqlguard

import "errors"

var (
	// ErrOption says that [New] was given a dialect that does not exist.
	ErrOption = errors.New("sqlguard: invalid option")

	// ErrTable says that a table's name is refused, and by which rule.
	ErrTable = errors.New("sqlguard: invalid table name")

	// ErrNoRow says that a fenced statement had no row to change: nothing was
	// written, and no newer token is to blame.
	ErrNoRow = errors.New("sqlguard: no such row")
)
