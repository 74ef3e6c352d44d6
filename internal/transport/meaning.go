package transport

import (
	"errors"
	"strings"

	"github.com/redis/rueidis"
)

// meaning is what a reply to a script call says about sending the call again.
type meaning int

const (
	isFinal         meaning = iota // for the caller: the script ran, was refused, or may have run
	isUnknownScript                // after a restart, a failover, SCRIPT FLUSH
	isElsewhere                    // another server has the slot
	isMigrating                    // the slot is on its way to another server, and some of the keys are not here
	isCrossSlot                    // the server takes one lock in a call only
)

// meaning reads a reply of the node. What it says about the servers of a Cluster is noted: they are asked for their
// slots soon. Each meaning but isFinal is that of a call that did not run, save that of a client that has given up its
// server; every script may run twice.
func (n *Node) meaning(r rueidis.RedisResult) meaning {
	err := r.Error()
	if n.direct && errors.Is(err, rueidis.ErrClosing) {
		n.stale.Store(true)
		n.m.suspect()
		return isElsewhere
	}
	refusal, ok := refusalOf(err)
	if !ok {
		return isFinal
	}
	switch code := refusalCode(refusal.Error()); {
	case code == "NOSCRIPT":
		return isUnknownScript
	case crossesSlots(refusal.Error()):
		return isCrossSlot
	case code == "TRYAGAIN" && !n.m.Standalone():
		return isMigrating
	case !n.direct: // its client follows redirections itself
	case code == "MOVED":
		n.m.suspect()
		return isElsewhere
	case code == "ASK":
		return isElsewhere
	case code == "CLUSTERDOWN":
		n.m.suspect()
	}
	return isFinal
}

// crossesSlots reports whether a server refuses keys because they are in different slots. Some clusters behind one
// address have words of their own for it.
func crossesSlots(text string) bool {
	return strings.HasPrefix(text, "CROSSSLOT") || strings.Contains(text, "same slot")
}

// manner is how a call is sent.
type manner struct {
	whole  bool // the script itself; else its digest
	routed bool // where a redirection leads; else straight to the node
	alone  bool // the lock as the only key; else all its keys
}

// after returns how a call that was sent in this manner is sent again after a reply of that meaning; again is false
// where it is not. Each manner is tried once, so it comes to an end. A call that names its lock alone is routed at once
// where the client follows redirections.
func (how manner) after(reply meaning, clientFollows bool) (next manner, again bool) {
	next = how
	switch reply {
	case isUnknownScript:
		next.whole = true
	case isElsewhere:
		next.routed = true
	case isMigrating:
		if !how.alone {
			next.alone, next.routed = true, clientFollows
		}
	}
	return next, next != how
}
