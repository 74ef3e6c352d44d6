package engine

import (
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/scripts"
)

// scriptSet holds the scripts for one master, salted with its identity. It is immutable. The engine replaces it as a
// whole when another server answers as the master, and a call keeps the script that it began with.
type scriptSet struct {
	salt                                                                  string
	acquire, join, renew, refresh, release, raise, yield, regain, inspect *transport.Script
}

// scriptsOf returns the scripts for a master.
func (e *Engine) scriptsOf(m *transport.Master) *scriptSet { return e.scripts[m.Index].Load() }

// newScriptSet makes the scripts with the given salt: "" for a single master, and before the set is known.
func newScriptSet(salt string) *scriptSet {
	script := func(name scripts.Name) *transport.Script { return transport.NewScript(name, salt) }
	return &scriptSet{
		salt:    salt,
		acquire: script(scripts.Acquire), join: script(scripts.Join), renew: script(scripts.Renew),
		refresh: script(scripts.Refresh), release: script(scripts.Release), raise: script(scripts.Raise),
		yield: script(scripts.Yield), regain: script(scripts.Regain), inspect: script(scripts.Inspect),
	}
}
