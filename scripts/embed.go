// Package scripts embeds the Lua programs that are the lock's server side. Each file begins with its contract: keys,
// arguments, reply, why a second run with the same arguments is harmless, and its cost.
//
// A script reads the lock with one HMGET, takes its common case straight, and returns. What the scripts share stands in
// files of its own, vote.lua, lock.lua and settle.lua, and is included where a line says so: after the common case,
// which then does not pay for it.
package scripts

import (
	"embed"
	"iter"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

// Name names a script: its file without ".lua".
type Name string

// The scripts, by what they do to a hold.
const (
	Acquire Name = "acquire" // grant it or queue it
	Join    Name = "join"    // nest it in its owner's standing hold
	Renew   Name = "renew"   // move its expiry forward, with many others
	Refresh Name = "refresh" // keep waiters alive
	Release Name = "release" // end it and hand the lock on
	Raise   Name = "raise"   // bring its token up to the one that a quorum agreed on
	Yield   Name = "yield"   // put it back behind an older one
	Regain  Name = "regain"  // take it again where a master has lost it
	Marker  Name = "marker"  // what one of several masters remembers of itself
	Inspect Name = "inspect" // show a lock, change nothing
)

var names = []Name{Acquire, Join, Renew, Refresh, Release, Raise, Yield, Regain, Marker, Inspect}

// include begins a line that stands for the whole of the file that it names.
const include = "-- include: "

// sources assembles each script when it is first asked for.
var sources = func() map[Name]func() string {
	all := make(map[Name]func() string, len(names))
	for _, name := range names {
		all[name] = sync.OnceValue(func() string { return assemble(string(name) + ".lua") })
	}
	return all
}()

// Source returns the whole program to be sent to a server, or "" for a name that is not one of All.
func Source(name Name) string {
	if source, known := sources[name]; known {
		return source()
	}
	return ""
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
		return "" // only a name in an include line could be wrong, and a test looks at every one
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if part, ok := strings.CutPrefix(line, include); ok {
			line = assemble(strings.TrimSpace(part))
		}
		b.WriteString(line)
	}
	return b.String()
}
