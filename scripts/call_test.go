package scripts_test

import (
	"fmt"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// call is a script with its arguments.
type call struct {
	script scripts.Name
	keys   []string
	args   []string
}

const (
	ttl       = 40_000 // ms, longer than any test takes
	claim     = 20_000 // ms
	markerKey = "fencelock:master"
	channel   = "fencelock:c:client"
	setID     = "01JSET:run" // the marker that newMarker sets
)

// lockKeys are the keys of a lock in the order of lock.lua.
func lockKeys(name string) []string {
	k := "fencelock:{" + name + "}"
	return []string{k, k + ":h", k + ":q", k + ":x"}
}

var lockKey = lockKeys("n")[0]

// ulid makes an id of full length from a short one: they order as the short ones do.
func ulid(short string) string {
	if short == "" || short == "-" || short[0] == '+' {
		return short
	}
	return strings.Repeat("0", 26-len(short)) + short
}

// request is one acquisition as a client describes it to the scripts.
type request struct {
	hold, owner string // short; no owner: its own, as the hold's id is; +B: a cohort's, with blocks of B tokens
	from        string // short: the hold that this one converts
	mode        string
	route       string // "": a channel whose count of listeners says nothing
	ttl, claim  int
	claimed     int64 // the token of the hold to join; 0: any
	meta        string
}

func (r request) details() string {
	owner := r.owner
	if owner == "" {
		owner = "-"
	}
	owner = ulid(owner)
	if r.from != "" {
		owner += "^" + ulid(r.from)
	}
	route := r.route
	if route == "" {
		route = "b" + channel
	}
	return fmt.Sprintf("%s %d %s %s %s", r.mode, r.claim, owner, route, r.meta)
}

// on is a call of one master's script for that lock.
func on(name string, script scripts.Name, args ...any) call {
	return call{script, lockKeys(name), append([]string{"0"}, texts(args)...)}
}

// vote is the first argument of a script on one of several masters.
type vote struct {
	proposal int64
	seen     string
	check    int
}

func (v vote) text() string {
	if v.seen == "" {
		v.seen = "-"
	}
	return fmt.Sprintf("%d %s 10000 %d", v.proposal, v.seen, v.check)
}

// of turns a call of one master's script into one of several masters'.
func (v vote) of(c call) call {
	args := append([]string{v.text()}, c.args[1:]...)
	return call{c.script, append(append([]string{}, c.keys...), markerKey), args}
}

func ask(r request, order string) call {
	return on("n", scripts.Acquire, ulid(r.hold), r.ttl, order, r.details())
}

func reader(hold string) request {
	return request{hold: hold, mode: "r", ttl: ttl, claim: claim, meta: "meta of it"}
}

func writer(hold string) request {
	return request{hold: hold, mode: "w", ttl: ttl, claim: claim, meta: "meta of it"}
}

func (r request) by(owner string) request        { r.owner = owner; return r }
func (r request) ofCohort(block int) request     { return r.by(fmt.Sprint("+", block)) }
func (r request) converting(from string) request { r.from = from; return r }
func (r request) claiming(token int64) request   { r.claimed = token; return r }
func (r request) lasting(ms int) request         { r.ttl = ms; return r }
func (r request) waiting(ms int) request         { r.claim = ms; return r }
func (r request) listening(to string) request    { r.route = to; return r }
func acquire(r request) call                     { return ask(r, "a") }
func tryAcquire(r request) call                  { return ask(r, "0") }
func acquireByID(r request) call                 { return ask(r, "h") }
func release(hold string, tombstone int) call {
	return on("n", scripts.Release, ulid(hold), tombstone, 0)
}

// releaseMany is release of several holds in one call.
func releaseMany(first string, others ...string) call {
	c := release(first, 0)
	for _, hold := range others {
		c.args = append(c.args, ulid(hold))
	}
	return c
}

func raise(hold string, token int64) call { return on("n", scripts.Raise, ulid(hold), token) }
func yield(hold string, token int64) call { return on("n", scripts.Yield, ulid(hold), token) }
func renew(hold string, ttl int, token any) call {
	c := on("n", scripts.Renew, ulid(hold), ttl, token)
	c.keys = c.keys[:2]
	return c
}

// releaseAll is release where more than one acquire of the hold may still come.
func releaseAll(hold string, tombstone int) call {
	return on("n", scripts.Release, ulid(hold), tombstone, 1)
}

func join(r request) call {
	return on("n", scripts.Join, ulid(r.hold), ulid(r.owner), r.mode, r.ttl, r.details(), r.claimed)
}

func regain(r request, token int64, trusted int) call {
	return on("n", scripts.Regain, ulid(r.hold), r.ttl, token, r.details(), trusted)
}

func refresh(holds ...string) call { return refreshBy("-", holds...) }

// refreshBy is refresh by a process that listens there now.
func refreshBy(route string, holds ...string) call {
	return refreshFar(route, 0, 0, holds...)
}

// refreshFar is refresh by a process whose waiters in state f live for so many ms; with far 1 the holds get that state.
func refreshFar(route string, life, far int, holds ...string) call {
	args := []any{route, life, far}
	for _, hold := range holds {
		args = append(args, ulid(hold))
	}
	return on("n", scripts.Refresh, args...)
}

func inspect() call { return call{scripts.Inspect, lockKeys("n"), nil} }

func texts(args []any) []string {
	all := make([]string, 0, len(args))
	for _, a := range args {
		all = append(all, fmt.Sprint(a))
	}
	return all
}

// newMarker lets this one of several masters vote.
func (e *env) newMarker() {
	e.t.Helper()
	e.setFields(markerKey, "set", "01JSET", "run", "run", "id", setID, "until", 0)
}
