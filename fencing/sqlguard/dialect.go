package sqlguard

import "fmt"

// Dialect is a family of databases that understand the same statements.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = 1 // 9.6 or newer
	MySQL      Dialect = 2 // MySQL 5.7 or newer, MariaDB 10.2 or newer; InnoDB tables
	SQLite     Dialect = 3 // 3.24 or newer
)

// String returns the dialect's name.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	default:
		return fmt.Sprintf("Dialect(%d)", uint8(d))
	}
}

func (d Dialect) validate() error {
	if d < PostgreSQL || d > SQLite {
		return fmt.Errorf("%w: %v is none of PostgreSQL, MySQL and SQLite", ErrOption, d)
	}
	return nil
}
