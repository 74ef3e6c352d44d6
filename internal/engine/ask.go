package engine

import (
	"strconv"

	"github.com/seed74116694/fencelock/internal/transport"
)

// The request for the hold.

// sending records that a request is about to leave and returns its arguments, under mu. The vote counts as asked from
// here on, before anything is written, so that a release always knows that the request may have run.
func (a *acquisition) sending(m *transport.Master, vote string, into *[7]string) (hold string, args []string) {
	if a.asks > 0 { // the route of messages to this process may have changed
		a.describe()
	}
	a.asks++
	a.lease.ballot.Vote(m.Index).Ask()
	// The node timeout counts from the last request.
	if a.asked != nil {
		select {
		case a.asked <- struct{}{}:
		default:
		}
	}
	return a.lease.id, a.args(vote, into)
}

// start begins an attempt with a hold of its own.
func (a *acquisition) start() {
	l := a.lease
	a.describe()
	l.ballot.Start(a.entry, len(l.e.masters))
}

// describe updates the details that masters get of the hold. They are made once for all masters and all requests,
// because a route changes only where a listener follows a master to another server.
func (a *acquisition) describe() {
	if route := a.lease.e.mailbox.route(a.lease.key.lock()); route != a.route {
		a.route, a.detail = route, a.lease.details(route, a.converts)
	}
}

// args fills the arguments of script into an array of the caller, which is on its stack for a single master.
func (a *acquisition) args(vote string, into *[7]string) []string {
	l := a.lease
	if a.entry == Join {
		claimed := strconv.FormatInt(int64(l.extra.claimed), 10)
		*into = [7]string{vote, l.id, l.owner(), modeArg(l.mode), l.terms.ttlArg, a.detail, claimed}
		return into[:]
	}
	*into = [7]string{vote, l.id, l.terms.ttlArg, order(a.entry, len(l.e.masters) == 1), a.detail}
	return into[:5]
}

// script returns the script that asks for the hold. It is looked up for each request: in the meantime the master may
// have turned out to be another process, and then its scripts have other digests.
func (a *acquisition) script(m *transport.Master) *transport.Script {
	if a.entry == Join {
		return a.lease.e.scriptsOf(m).join
	}
	return a.lease.e.scriptsOf(m).acquire
}
