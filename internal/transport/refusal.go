package transport

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/wire"
)

// NoReply is the error of a master that did not answer within the time that this library allows. It never represents
// the end of the caller's own context.
type NoReply struct{ After time.Duration }

func (e *NoReply) Error() string { return "no reply in " + e.After.Round(time.Millisecond).String() }

// NotSent is the answer to a request that was not sent, because the master failed a moment before.
type NotSent struct {
	Cause error
	Final bool // asking the master again is useless
}

func (e *NotSent) Error() string {
	if e.Final {
		return e.Cause.Error()
	}
	return "failed a moment ago: " + e.Cause.Error()
}

func (e *NotSent) Unwrap() error { return e.Cause }

// refusalOf returns the server's own error reply, if err contains one.
func refusalOf(err error) (refusal *rueidis.RedisError, ok bool) {
	refusal, ok = errors.AsType[*rueidis.RedisError](err)
	return refusal, ok && !refusal.IsNil()
}

// Refused reports whether the server itself answered with an error.
func Refused(err error) bool {
	_, ok := refusalOf(err)
	return ok
}

// Conflict reports whether a key of the lock holds a value that this library did not write.
func Conflict(err error) bool {
	return errors.Is(err, wire.ErrCounter) ||
		err != nil && (strings.Contains(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), "not an integer"))
}

// DidNotRun reports whether the request certainly did not run: it was not sent, the server refused it, or no connection
// could be established to carry it. BUSY and UNKILLABLE are refusals too.
func DidNotRun(err error) bool {
	if _, ok := errors.AsType[*NotSent](err); ok {
		return true
	}
	if _, ok := refusalOf(err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// refusalKind classifies the refusals of a server. This is the only place that reads their text to decide whether a
// call is sent again (next), whether the refusal passes by itself (Permanent), and what the user is advised (Explain).
type refusalKind int

const (
	notRefused    refusalKind = iota // no error reply of the server
	unknownScript                    // NOSCRIPT, after a restart, a failover, SCRIPT FLUSH
	moved                            // another server has the slot
	ask                              // the slot is moving to another server, which has this key already
	migrating                        // TRYAGAIN: the slot is moving, and the keys of this call are at two servers
	clusterDown                      // the slot has no server now
	crossSlot                        // the server accepts only one lock per call
	readOnly                         // the server is a replica
	unready                          // LOADING and MASTERDOWN: the server has not got its data so far
	denied                           // the user may not do this, or is not known
	rejected                         // the server will refuse this call every time
	passing                          // BUSY, OOM and others that pass by themselves
)

// kindOfCode has the refusals that a server marks by a code. Every other code is passing.
var kindOfCode = map[string]refusalKind{
	"NOSCRIPT":    unknownScript,
	"MOVED":       moved,
	"ASK":         ask,
	"TRYAGAIN":    migrating,
	"CLUSTERDOWN": clusterDown,
	"CROSSSLOT":   crossSlot,
	"READONLY":    readOnly,
	"LOADING":     unready,
	"MASTERDOWN":  unready,
	"NOAUTH":      denied,
	"WRONGPASS":   denied,
	"NOPERM":      denied,
	"WRONGTYPE":   rejected,
}

func kindOf(err error) refusalKind {
	refusal, ok := refusalOf(err)
	if !ok {
		return notRefused
	}
	text := refusal.Error()
	switch code := refusalCode(text); {
	case strings.Contains(text, "same slot"): // the refusal of some clusters behind one address
		return crossSlot
	case strings.HasPrefix(text, "ACL failure in script"): // Valkey's NOPERM inside a script
		return denied
	case strings.HasPrefix(text, noDatabase), strings.HasPrefix(text, databaseOfCluster): // their first words are no codes
		return rejected
	case code != "":
		if kind, known := kindOfCode[code]; known {
			return kind
		}
		return passing
	case strings.HasPrefix(text, "max number of clients reached"),
		strings.HasPrefix(text, "Script attempted to access a non local key"): // the slot of a channel has moved away
		return passing
	default:
		return rejected
	}
}

// The refusals of a connection to a database that the server does not have.
const (
	noDatabase        = "DB index is out of range"
	databaseOfCluster = "SELECT is not allowed in cluster mode"
)

// refusalCode returns the capitalized first word of a refusal, or "". rueidis removes the general code ERR.
func refusalCode(text string) string {
	code, _, _ := strings.Cut(text, " ")
	if strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return code
}

// FromCluster reports whether only a node of a Cluster gives this refusal: it does not serve the key's slot, or does
// not serve it now.
func FromCluster(err error) bool {
	switch kindOf(err) {
	case moved, ask, migrating, clusterDown:
		return true
	default:
		return false
	}
}

// Advised is a refusal that no retry will change, with advice for the user.
type Advised struct {
	Refusal error
	Advice  string
}

func (e *Advised) Error() string { return e.Refusal.Error() + ": " + e.Advice }

func (e *Advised) Unwrap() error { return e.Refusal }

// The advice for a node of a cluster with a client for a single server, for a server without scripts, for a cluster as
// one of several masters, and for a server that grants nothing.
const (
	ClusterAdvice = "a node of a Cluster needs a client of the Cluster: leave the address of Dial empty and name " +
		"the node in InitAddress"
	scriptsAdvice = "locks need a server that runs Lua scripts (EVALSHA and EVAL)"
	slotsAdvice   = "a master of a quorum must not be a Cluster, not even behind a single address"
	closedAdvice  = "the client of this locker was closed"
	replicaAdvice = "the server is a replica; locks need its master"
)

// ErrNoSlots is the failure of a Cluster none of whose nodes has slots.
var ErrNoSlots = errors.New("CLUSTERDOWN no node has slots")

// DiskCure is what to do about a server that cannot save its data.
const DiskCure = "free or repair the server's disk, its log says why, and save again by BGSAVE; until then a restart " +
	"forgets locks, and the server may refuse all of them (MISCONF)"

// cures are what an operator does about a failure, by a part of its text.
var cures = []struct{ part, cure string }{
	{"WRONGPASS", "the server does not accept this user and password" + inTheURL},
	{"NOAUTH", "the server wants a password" + inTheURL},
	{noDatabase, "the server has fewer databases: choose a smaller number, or raise databases in its configuration"},
	{databaseOfCluster, "the server is a node of a Cluster, which has database 0 alone"},
	{"NOPERM", "give the user the rights that SECURITY.md lists for this deployment; fencelock doctor names what is " +
		"missing"},
	{"OOM ", "the server has no memory left: raise maxmemory, or find what fills it (redis-cli --bigkeys)"},
	{"NOREPLICAS", "the server wants more replicas than it has now (min-replicas-to-write): start them, or lower it"},
	{"MISCONF", DiskCure},
	{"BUSY ", busyCure},
	{"UNKILLABLE ", busyCure},
	{"LOADING", "wait: the server has not loaded its data so far"},
	{"MASTERDOWN", "wait: the replica has not loaded the data of its master so far"},
	{"max number of clients", "the server has as many clients as it may have: CLIENT LIST shows them; or raise " +
		"maxclients"},
	{"CLUSTERDOWN", "slots of the Cluster have no server now: redis-cli --cluster check names them; start their nodes, " +
		"or assign the slots"},
	{"no reply", "the server hangs, is busy with a long command, or its clients are paused (CLIENT UNPAUSE); or only " +
		"one of the two speaks TLS"},
	{"x509", "the certificate of the server must be for this name, and by an authority that the client trusts"},
	{"first command (HELLO)", "the other side ends each connection: does it speak TLS at this port? Is it a proxy whose " +
		"servers are down? A proxy that does not know HELLO, such as twemproxy, cannot carry locks"},
	{"connection reset", tlsCure},
	{"EOF", tlsCure},
	{"connection refused", "no server listens there: is it running, and is the address right?"},
	{"dial timed out", "no connection in time: is the address right, does a firewall let this machine through, and do " +
		"both sides speak TLS, or neither?"},
	{"no such host", "no DNS server knows this name: is the address right?"},
}

const inTheURL = ", as in redis://user:password@host:port, or redis://:password@host:port where there is only a " +
	"password, or in the options of Dial"

const tlsCure = "the server ends the connection: does it speak TLS at this port, or is it no Redis?"

const busyCure = "a script or a function runs for long: SCRIPT KILL or FUNCTION KILL ends it if it has not written " +
	"so far"

// Cure returns what an operator does about the failure of a server, or "" if that is not known.
func Cure(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, c := range cures {
		if strings.Contains(text, c.part) {
			return c.cure
		}
	}
	return ""
}

// CheckWrite fails if the server of the key takes no writes now: READONLY, OOM, NOREPLICAS, MISCONF,
// CLUSTERDOWN or a right that is missing. It writes nothing: with XX a member that is not there is not added.
func CheckWrite(ctx context.Context, client rueidis.CoreClient, key string) rueidis.RedisResult {
	r := client.Do(withoutDeadline{ctx}, client.B().Arbitrary("ZADD").Keys(key).Args("XX", "0", "-").Build())
	LeaveReplica(client, r.Error())
	return r
}

// LeaveReplica has a client from Dial connect anew if its one server has refused a call because it is a replica, or has
// not got its data so far. An address may lead to another server since the connection was made, as a service of
// Kubernetes and a proxy do after a failover, and the connections to the former master stay.
func LeaveReplica(client rueidis.CoreClient, err error) {
	if kind := kindOf(err); kind == readOnly || kind == unready {
		if c, ok := client.(connected); ok {
			c.Leave(err)
		}
	}
}

// refusesAsReplica returns the refusal of a replica, or that there was no answer: the connection may have been closed
// because another call was refused so. A refusal for another reason is that of a master.
func refusesAsReplica(ctx context.Context, client rueidis.CoreClient, key string) error {
	r := CheckWrite(ctx, client, key)
	if err := r.NonRedisError(); err != nil {
		return err
	}
	return onlyReadOnly(r.Error())
}

func onlyReadOnly(err error) error {
	if kindOf(err) == readOnly {
		return err
	}
	return nil
}

// Lasts reports whether the server refused the call for a reason that does not pass by itself: a right, a password or
// a value that the call cannot work with.
func Lasts(err error) bool {
	switch kindOf(err) {
	case denied, rejected:
		return true
	default:
		return false
	}
}
