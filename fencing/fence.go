package fencing

import (
	"fmt"
	"unicode/utf8"
)

// MaxResource is the greatest length of a resource's name, in bytes.
const MaxResource = 512

// Fence is the proof that a holder shows to the storage: the grant with this token lets it read or write this resource.
// The resource is the name of the lock, without the prefix of its locker. Lockers that do not exclude each other need
// different names, or separate guards.
type Fence struct {
	Resource string // 1 to 512 bytes of valid UTF-8
	Token    Token  // not zero
	Mode     Mode   // Read or Write
}

// Validate returns an error if f must not be shown to a storage: a resource that is empty, longer than [MaxResource] or
// not UTF-8, a token out of range or a mode that is neither [Read] nor [Write] is a [*MalformedError]; a token of zero
// is [ErrMissing].
func (f Fence) Validate() error {
	if err := validateResource(f.Resource); err != nil {
		return err
	}
	if f.Token == 0 {
		return missing(f.Resource)
	}
	if err := f.Token.inRange(); err != nil {
		return err
	}
	if f.Mode != Read && f.Mode != Write {
		return malformed("mode", f.Mode.String(), "it must be read or write")
	}
	return nil
}

// Fence returns f itself: a Fence is a [Source] that never changes.
func (f Fence) Fence() Fence { return f }

// String formats the fence for logs, such as `write "orders/42" token 17`.
func (f Fence) String() string {
	return fmt.Sprintf("%s %q token %d", f.Mode, f.Resource, uint64(f.Token))
}

func validateResource(name string) error {
	switch {
	case name == "":
		return malformed("resource", name, "it is empty")
	case len(name) > MaxResource:
		return malformed("resource", name, fmt.Sprintf("it has %d bytes, the limit is %d", len(name), MaxResource))
	case !utf8.ValidString(name):
		return malformed("resource", name, "it is not valid UTF-8")
	}
	return nil
}
