package testkit

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/seed74116694/fencelock/scripts"
)

// scriptNames returns the scripts by their digest and by their source.
var scriptNames = sync.OnceValue(func() map[string]scripts.Name {
	names := make(map[string]scripts.Name)
	for name, source := range scripts.All() {
		names[source], names[digest(source)] = name, name
	}
	return names
})

func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// ScriptOf returns which script a command runs, by digest or whole, or "" for none. See World.ScriptOf for several
// masters.
func ScriptOf(cmd []string) scripts.Name {
	if len(cmd) < 2 {
		return ""
	}
	return scriptNames()[cmd[1]]
}

// Running matches the commands that run one of these scripts. See World.Running for several masters.
func Running(names ...scripts.Name) func(cmd []string) bool {
	return func(cmd []string) bool { return isOneOf(ScriptOf(cmd), names) }
}

func isOneOf(name scripts.Name, names []scripts.Name) bool {
	return name != "" && slices.Contains(names, name)
}

// HoldsOf returns the holds that a command concerns: the beginning of the first argument, where that is no vote, or the
// argument after the vote, or of a renewal every second one. See the headers in scripts.
func HoldsOf(cmd []string) (holds []string) {
	const id = 26 // characters
	keys, err := strconv.Atoi(cmd[2])
	if err != nil {
		return nil
	}
	args := cmd[3+keys:]
	switch {
	case ScriptOf(cmd) == scripts.Renew:
		for i := 3; i < len(args); i += 2 { // behind the vote, the TTL and the kind
			holds = append(holds, args[i])
		}
		return holds
	case len(args[0]) >= id && !strings.Contains(args[0][:id], " "):
		return []string{args[0][:id]}
	default:
		return args[1:2]
	}
}

// saltedScripts are scripts that are sent with something after them, as to several masters, by digest.
type saltedScripts struct {
	mu      sync.Mutex
	digests map[string]scripts.Name
}

// Requests are the scripts that have reached a master, in the order of arrival.
type Requests struct {
	w     *World
	notes Notes[Request]
}

// Request is one call of a script.
type Request struct {
	Script scripts.Name
	Cmd    []string
	At     time.Time
}

// All returns what has come so far. In fake time it waits for what is on its way.
func (r *Requests) All() []Request {
	if r.w.Mini != nil {
		synctest.Wait()
	}
	return r.notes.All()
}

// Counts returns how often each script has come.
func (r *Requests) Counts() map[scripts.Name]int {
	counts := make(map[scripts.Name]int)
	for _, one := range r.All() {
		counts[one.Script]++
	}
	return counts
}

// Of returns how often this script has come.
func (r *Requests) Of(name scripts.Name) int { return r.Counts()[name] }
