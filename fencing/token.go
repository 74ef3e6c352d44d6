package fencing

import (
	"database/sql/driver"
	"fmt"
	"strconv"
)

// Token orders the grants of one lock. A write's token is greater than every
// token before it; a read's is greater than every write's before it. Two reads
// may share a token, and over a quorum a later read may have a smaller one.
// Tokens of different locks say nothing about each other.
//
// Zero means that there is no token; no grant has it. A token is below
// [MaxToken]+1 = 2^53, so it is exact in Lua, in JavaScript and in any other
// language whose numbers are IEEE 754 doubles.
//
// As text, and so as JSON too, a token is a string of decimal digits, because
// not every JSON library keeps an integer of 16 digits. In SQL it is a BIGINT.
type Token uint64

// MaxToken is the greatest possible token.
const MaxToken Token = 1<<53 - 1

// paddedLen is the number of digits of the greatest uint64: the width of a column that sorts any unsigned number as
// text.
const paddedLen = 20

// ParseToken parses a token in the form of [Token.String] or [Token.Padded]: decimal digits only, no sign, no space,
// and leading zeros only in a text of 20 digits. "0" is the token that means none. Any other text, including a number
// above [MaxToken], is a [*MalformedError] and the token is zero.
func ParseToken(s string) (Token, error) {
	switch {
	case s == "":
		return 0, malformed("token", s, "it is empty")
	case len(s) > paddedLen:
		return 0, malformed("token", s, fmt.Sprintf("it has %d bytes, the limit is %d", len(s), paddedLen))
	case s[0] == '0' && len(s) > 1 && len(s) < paddedLen:
		return 0, malformed("token", s, fmt.Sprintf("leading zeros are for the form of %d digits", paddedLen))
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, malformed("token", s, "only decimal digits are allowed")
		}
	}
	// Twenty digits may exceed even a uint64; ParseUint reports that.
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || Token(n) > MaxToken {
		return 0, malformed("token", s, fmt.Sprintf("the limit is %d", MaxToken))
	}
	return Token(n), nil
}

// String returns the token in decimal digits without leading zeros.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// Padded returns the token in 20 decimal digits, so that the order of the texts is the order of the tokens: for object
// names, and stores that compare bytes.
func (t Token) Padded() string { return fmt.Sprintf("%0*d", paddedLen, uint64(t)) }

// MarshalText returns the text of [Token.String]. A token above [MaxToken] is a [*MalformedError].
func (t Token) MarshalText() ([]byte, error) {
	if err := t.inRange(); err != nil {
		return nil, err
	}
	return strconv.AppendUint(nil, uint64(t), 10), nil
}

// UnmarshalText parses text as [ParseToken] does; on an error t is unchanged.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

func (t Token) inRange() error {
	if t > MaxToken {
		return malformed("token", t.String(), fmt.Sprintf("the limit is %d", MaxToken))
	}
	return nil
}

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
