package rwlock

import (
	"fmt"
	"unicode/utf8"
)

// maxName bounds a lock's name, in bytes. A fence carries the name, so it is fencing.MaxResource too; and each of its
// keys on the server has the name in it.
const maxName = 512

// checkName refuses a name before anything is sent: scripts, keys, headers and logs take any name that it lets pass.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return &OptionError{"name", fmt.Sprintf("%d bytes", len(name)), fmt.Sprintf("must be 1 to %d bytes", maxName)}
	case !utf8.ValidString(name):
		return &OptionError{"name", fmt.Sprintf("%q", name), "must be valid UTF-8"}
	}
	return nil
}
