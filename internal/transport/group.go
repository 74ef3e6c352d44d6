package transport

import (
	"errors"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// Acquires and releases of a batch are one call, a group: half of what a lock costs a server is the overhead of calls.
// The script does only the common case of each member. The others are sent again alone, as without groups. A group
// whose call fails has run, or not, as a single call that fails. In a Cluster each lock has a slot of its own, and
// there are no groups.
//
// Callers of Do are gathered to a batch while the first of them yields once to the goroutines that are ready to run. So
// no call waits for the answer to another one, and a lone call waits for nothing.

const (
	groupMost    = 64  // members: half a millisecond of the server's time
	groupLeast   = 4   // members for which it is worth it, as a member that is left costs a round trip
	ungroupedFor = 256 // calls after a group of which most were left: the locks of the process are contended then
)

// Set is what the acquires of one caller have in common, who needs all of these locks or none. Those of one batch are a
// group of their own. What it does not take for the sake of another writer's lock is refused, like that lock.
type Set struct {
	Before bool // takes what comes before that lock
}

// errLeft is the result of a member that did not run.
var errLeft = errors.New("to be sent alone")

// joins reports whether a call may be a member of a group: those that cannot be the common case are not.
func (s *Script) joins(args []string) bool {
	if s.group == nil || s.name == scripts.Release {
		return s.group != nil && len(args) == 1
	}
	details, writes := strings.CutPrefix(args[len(args)-1], "w ")
	_, owner, _ := strings.Cut(details, " ")
	return writes && len(args) == 4 && strings.HasPrefix(owner, "- ")
}
