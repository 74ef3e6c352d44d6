// Package scripts embeds the Lua programs that are the lock's server side. Each file begins with its contract: keys,
// arguments, reply, why a second run with the same arguments is harmless, and its cost.
package scripts

import (
	"embed"
	"iter"
)

//go:embed *.lua
var files embed.FS

// Name names a script: its file without ".lua".
type Name string

// The scripts, by what they do to a hold.
const (
	Acquire Name = "acquire" // grant it or queue it
	Join    Name = "join"    // nest it in its owner's standing hold
	Renew   Name = "renew"   // move its expiry forward
	Refresh Name = "refresh" // keep waiters alive
	Release Name = "release" // end it and hand the lock on
	Raise   Name = "raise"   // bring its token up to the one that a quorum agreed on
	Yield   Name = "yield"   // put it back behind an older one
	Marker  Name = "marker"  // what one of several masters remembers of itself
	Inspect Name = "inspect" // show a lock, change nothing
)

// prelude is put in front of every script that changes a lock; it is no program of its own.
const prelude Name = "prelude"

var names = []Name{Acquire, Join, Renew, Refresh, Release, Raise, Yield, Marker, Inspect}

// Source returns the whole program to be sent to a server, or "" for a name that is not one of All.
func Source(name Name) string {
	switch name {
	case prelude:
		return ""
	case Inspect, Marker:
		return read(name)
	}
	if body := read(name); body != "" {
		return read(prelude) + "\n" + body
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

func read(name Name) string {
	text, err := files.ReadFile(string(name) + ".lua")
	if err != nil {
		return ""
	}
	return string(text)
}
