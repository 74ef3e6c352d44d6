package engine

import (
	"sync/atomic"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

type masters []*transport.Master

func (all masters) quorum() int { return len(all)/2 + 1 }

// lost reports whether so many masters satisfy is that the others are no quorum.
func (all masters) lost(is func(*transport.Master) bool) bool {
	n := 0
	for _, m := range all {
		if is(m) {
			n++
		}
	}
	return 2*n >= len(all)
}

// subscriptionDown reports whether so many masters cannot send the hand-off messages of this lock that no quorum can.
func (all masters) subscriptionDown(lock string) bool {
	return all.lost(func(m *transport.Master) bool { return m.SubscriptionDown(lock) })
}

// route returns how messages about this lock reach this engine. With several masters the route is uncounted until the
// engine listens to each of them.
func (all masters) route(lock string) (route wire.Route) {
	for _, m := range all {
		if route = m.Route(lock); route.IsUncounted() {
			break
		}
	}
	return route
}

type scriptSets []atomic.Pointer[scriptSet]

func (all scriptSets) of(m *transport.Master) *scriptSet { return all[m.Index].Load() }

// salt gives a master's scripts digests for its server process. That process restarts, say, and a request made for it
// leaves over a new connection: the script cache is new too, so the digest is unknown, the request is sent again in
// full, and the master compares the run id. Package masterset says what protects if that fails. Clients that may not
// read the run id have scripts of their own: the scripts that they load prove nothing about a restart.
func (all scriptSets) salt(master int, process string) {
	if of := &all[master]; of.Load().salt != process {
		of.Store(newScriptSet(process))
	}
}

// scriptSet holds the scripts for one master, salted with its identity. It is immutable. The engine replaces it as a
// whole when another server answers as the master, and a call keeps the script that it began with.
type scriptSet struct {
	salt string

	acquire, join, renew, refresh, release, raise, yield, regain, breaks, inspect *transport.Script

	plainRelease *transport.Script // of a write hold without a named owner and a block
	acquireAlone *transport.Script // in no group
}

// newScriptSet makes the scripts with the given salt: "" for a single master, and before the set is known.
func newScriptSet(salt string) *scriptSet {
	script := func(name scripts.Name) *transport.Script { return transport.NewScript(name, salt) }
	acquire := script(scripts.Acquire)
	return &scriptSet{
		salt:    salt,
		acquire: acquire, acquireAlone: acquire.Alone(), join: script(scripts.Join), renew: script(scripts.Renew),
		refresh: script(scripts.Refresh), release: script(scripts.Release), raise: script(scripts.Raise),
		yield: script(scripts.Yield), regain: script(scripts.Regain), breaks: script(scripts.Break),
		inspect: script(scripts.Inspect), plainRelease: script(scripts.Release).Grouped(),
	}
}

// postings are calls to several masters, to be posted when the mutex under which they were made is unlocked.
type postings []posting

type posting struct {
	m    *transport.Master
	call transport.Call
}

// fewMasters: the postings to so many masters are on the stack of a call.
const fewMasters = 5

func (all postings) post() {
	for i := range all {
		all[i].m.Post(all[i].call)
	}
}
