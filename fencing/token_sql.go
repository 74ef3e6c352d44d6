package fencing

import (
	"database/sql/driver"
	"fmt"
)

// Value makes a Token an argument of a SQL statement: an int64, for a column of type BIGINT. The token zero is 0, not
// NULL, so that a comparison with it remains defined. A token above [MaxToken] is a [*MalformedError].
func (t Token) Value() (driver.Value, error) {
	if err := t.inRange(); err != nil {
		return nil, err
	}
	return int64(t), nil
}

// Scan reads a token from a column: an integer, or text that [ParseToken] accepts; NULL is the token zero. A number
// that is not a token, and a value of another type (a float would have rounded it), is a [*MalformedError], and t is
// unchanged.
func (t *Token) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = 0
		return nil
	case int64:
		if v < 0 {
			return malformed("token", fmt.Sprint(v), "it is negative")
		}
		return t.set(uint64(v))
	case uint64: // the MySQL driver's BIGINT UNSIGNED
		return t.set(v)
	case []byte:
		return t.UnmarshalText(v)
	case string:
		return t.UnmarshalText([]byte(v))
	default:
		return malformed("token", fmt.Sprint(v), fmt.Sprintf("a column of type %T holds no token", v))
	}
}

func (t *Token) set(n uint64) error {
	if err := Token(n).inRange(); err != nil {
		return err
	}
	*t = Token(n)
	return nil
}
