package reentrant

import (
	"crypto/rand"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// Owner names one logical thread of control, across processes. The zero Owner is nobody's.
type Owner ulid.ULID

// NewOwner returns an owner that nobody else has. All its 80 random bits come from crypto/rand: two threads of one
// owner would hold a lock together.
func NewOwner() Owner { return Owner(ulid.MustNew(ulid.Now(), rand.Reader)) }

// ParseOwner reads an owner as String writes it: 26 characters of Crockford's base 32, in either case. Anything else,
// the zero Owner included, is a *rwlock.OptionError.
func ParseOwner(s string) (Owner, error) {
	id, err := ulid.ParseStrict(s)
	if err != nil || id.IsZero() {
		return Owner{}, &rwlock.OptionError{Option: "owner", Value: clip(s), Rule: "must be a ULID other than zero"}
	}
	return Owner(id), nil
}

// String returns the owner as a ULID of 26 characters, as Inspect shows it.
func (o Owner) String() string { return ulid.ULID(o).String() }

// clip quotes what came from outside, and no more of it than is needed to recognise it.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
