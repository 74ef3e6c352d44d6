package wire

import (
	"strconv"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
)

// Route says how a message reaches a process: a letter and a channel.
type Route string

// Published returns the route of a process that receives the messages of one server. A message that no process receives
// shows that the process does not listen.
func Published(channel string) Route { return Route("p" + channel) }

// Sharded is Published with the sharded messages of a Cluster's node.
func Sharded(channel string) Route { return Route("s" + channel) }

// Uncounted returns the route of a process whose messages may come through other servers, or that does not listen so
// far. The count of receivers shows nothing, so a master does not pass over its waiters.
func Uncounted(channel string) Route { return Route("b" + channel) }

// IsUncounted reports whether the count of receivers shows nothing.
func (r Route) IsUncounted() bool { return strings.HasPrefix(string(r), "b") }

// Details are what a master stores of a hold unchanged: the details of lock.lua.
type Details struct {
	Mode       fencing.Mode
	HandoffTTL Millis // how long a waiter lives without a refresh, and a hand-off without a renewal
	Owner      string // "" for the hold itself
	Block      int    // of a shared hold: how many tokens it asks for; 0 for all other holds
	Converts   string // the hold that is converted to this one, or ""
	Route      Route
	Meta       string // anything, with spaces

	gaveBack bool // the hold has given a grant back; a master adds it
}

// Text formats the details. A shared hold has no named owner.
func (d Details) Text() string {
	owner := "-"
	switch {
	case d.Block > 0:
		owner = "+" + strconv.Itoa(d.Block)
	case d.Owner != "":
		owner = d.Owner
	}
	if d.Converts != "" {
		owner += "^" + d.Converts
	}
	if d.gaveBack {
		owner += "~"
	}
	return modeArg(d.Mode) + " " + string(d.HandoffTTL) + " " + owner + " " + string(d.Route) + " " + d.Meta
}

// ParseDetails parses details that a client wrote, perhaps of a later version. ok is false for details of another form.
func ParseDetails(text string) (d Details, ok bool) {
	f := strings.SplitN(text, " ", 5)
	if len(f) != 5 {
		return Details{}, false
	}
	d = Details{HandoffTTL: Millis(f[1]), Route: Route(f[3]), Meta: f[4]}
	_, err := strconv.ParseUint(f[1], 10, 63)
	d.Mode, ok = readMode(f[0])
	if !ok || err != nil || len(f[3]) < 2 || !strings.Contains("psb", f[3][:1]) {
		return Details{}, false
	}
	owner, gaveBack := strings.CutSuffix(f[2], "~")
	owner, converts, isConversion := strings.Cut(owner, "^")
	if owner == "" || isConversion && converts == "" {
		return Details{}, false
	}
	d.Converts, d.gaveBack = converts, gaveBack
	if block, isShared := strings.CutPrefix(owner, "+"); isShared {
		n, err := strconv.ParseUint(block, 10, 31)
		if err != nil || n == 0 {
			return Details{}, false
		}
		d.Block = int(n)
	} else if owner != "-" {
		d.Owner = owner
	}
	return d, true
}
