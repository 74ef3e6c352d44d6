// Package scripts embeds the Lua scripts that are the lock's server side. Each file begins with its contract: keys,
// arguments, reply, why a second run with the same arguments is harmless, and its cost.
//
// A script reads the lock, mostly with one HMGET, handles its common case first, and returns. Shared code is in files
// of its own, and so are the parts of acquire.lua. An include line stands for the whole text of such a file. Those of
// lock.lua and settle.lua come after the common case, which then does not pay for them.
package scripts

import (
	"crypto/fips140"
	"crypto/sha1" //nolint:gosec // see Digest
	"embed"
	"encoding/hex"
	"iter"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

// Name is the name of a script: its file name without ".lua".
type Name string

// The scripts, by what they do to a hold.
const (
	Acquire Name = "acquire" // grant it or queue it
	Join    Name = "join"    // nest it in its owner's standing hold
	Renew   Name = "renew"   // move its expiry forward, many holds in one call
	Refresh Name = "refresh" // keep waiters alive
	Release Name = "release" // end it and hand the lock on
	Raise   Name = "raise"   // raise its token to the token that a quorum agreed on
	Yield   Name = "yield"   // put it back behind an older one
	Regain  Name = "regain"  // take it again on a master that has lost it
	Marker  Name = "marker"  // read or write what a master stores about itself
	Break   Name = "break"   // take it away from its process
	Inspect Name = "inspect" // show a lock, change nothing
	Group   Name = "group"   // grant, queue or end several, the common case alone
)

var names = []Name{Acquire, Join, Renew, Refresh, Release, Raise, Yield, Regain, Marker, Break, Inspect, Group}

// include begins a line that names a file and stands for its whole text.
const include = "-- include: "

// sources assembles each script on its first use.
var sources = func() map[Name]func() string {
	all := make(map[Name]func() string, len(names))
	for _, name := range names {
		all[name] = sync.OnceValue(func() string { return assemble(string(name) + ".lua") })
	}
	return all
}()

// Source returns the whole text of a script, or "" for a name that All does not yield.
func Source(name Name) string {
	if source, known := sources[name]; known {
		return source()
	}
	return ""
}

// Digest returns the SHA-1 of a source, by which a server names the script, and which redis.sha1hex computes for other
// texts. Both are prescribed. It names a script and protects nothing, so it is also computed in a process that
// GODEBUG=fips140=only restricts to approved algorithms, where SHA-1 panics otherwise.
func Digest(source string) (digest string) {
	fips140.WithoutEnforcement(func() {
		sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
		digest = hex.EncodeToString(sum[:])
	})
	return digest
}

// All yields every script with its source.
func All() iter.Seq2[Name, string] {
	return func(yield func(Name, string) bool) {
		for _, name := range names {
			if !yield(name, Source(name)) {
				return
			}
		}
	}
}

func assemble(file string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		return "" // only an include line could have a wrong name, and a test checks every include line
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if part, ok := strings.CutPrefix(strings.TrimSpace(line), include); ok {
			line = assemble(strings.TrimSpace(part))
		}
		b.WriteString(line)
	}
	return b.String()
}
