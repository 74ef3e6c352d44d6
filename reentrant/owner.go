package reentrant

import (
	"crypto/rand"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// Owner names one logical thread of control, across processes. The zero Owner stands for no owner.
type Owner ulid.ULID

// NewOwner returns a unique owner. All its 80 random bits come from crypto/rand: if two threads had the same owner,
// they would hold a lock at the same time.
func NewOwner() Owner { return Owner(ulid.MustNew(ulid.Now(), rand.Reader)) }

// ParseOwner parses the result of String: 26 characters of Crockford's base 32, in either case. Any other text, the
// zero Owner included, is a *rwlock.OptionError.
func ParseOwner(s string) (Owner, error) {
	id, err := ulid.ParseStrict(s)
	if err != nil || id.IsZero() {
		return Owner{}, &rwlock.OptionError{Option: "owner", Value: clip(s), Rule: "must be a ULID other than zero"}
	}
	return Owner(id), nil
}

// String returns the owner as a ULID of 26 characters, as Inspect shows it.
func (o Owner) String() string { return ulid.ULID(o).String() }

// clip quotes a text from outside the program, shortened to a length that suffices to recognise it.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
