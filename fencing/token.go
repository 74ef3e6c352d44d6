package fencing

import (
	"cmp"
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

// Compare returns -1 if t is older than u, +1 if it is newer and 0 if they are
// equal. It fits [slices.SortFunc] as Token.Compare.
func (t Token) Compare(u Token) int { return cmp.Compare(t, u) }

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
