package rwlock

import (
	"fmt"
	"unicode/utf8"
)

// maxName bounds a lock's name, in bytes. It equals fencing.MaxResource, because a fence carries the name. Each key of
// the lock on the server contains the name too.
const maxName = 512

// checkName refuses a name before anything is sent. Scripts, keys, headers and logs accept any name that passes.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return &OptionError{"name", fmt.Sprintf("%d bytes", len(name)), fmt.Sprintf("must be 1 to %d bytes", maxName)}
	case !utf8.ValidString(name):
		return &OptionError{"name", fmt.Sprintf("%q", name), "must be valid UTF-8"}
	}
	return nil
}
