package wire

import (
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/scripts"
)

// Renew sets a new expiry for granted holds, of any locks, that have one TTL and kind: renew.lua.
type Renew []*Renewal

// Renewal is one hold of a Renew.
type Renewal struct {
	Key   string
	Hold  string
	TTL   Millis
	Kind  string // see RenewWrite; and behind it '#' and its mark if the hold is left to the client that has its secret
	Token fencing.Token
}

// The kinds of holds to renew: a write hold, one that learns of waiters, and a read hold, which does too.
const (
	RenewWrite  = "w"
	RenewShared = "s"
	RenewRead   = "r"
)

// MarkOf returns the mark of a hold that is left to another client: the hash of a secret that only its ticket has.
// Scripts have no other hash, and nobody profits from two secrets with one hash.
func MarkOf(secret string) string { return scripts.Digest(secret) }

// Keys returns the keys. marker is the key of one of several masters' marker, or "".
func (q Renew) Keys(marker string) []string {
	keys := make([]string, 0, len(q)+1)
	for _, r := range q {
		keys = append(keys, r.Key)
	}
	if marker != "" {
		keys = append(keys, marker)
	}
	return keys
}

// Args returns the arguments. The tokens share one string's memory.
func (q Renew) Args() []string {
	text, ends := make([]byte, 0, tokenDigits*len(q)), make([]int, len(q))
	for i, r := range q {
		text = appendToken(text, r.Token)
		ends[i] = len(text)
	}
	tokens, from, args := string(text), 0, make([]string, 0, 2+2*len(q))
	args = append(args, string(q[0].TTL), q[0].Kind)
	for i, r := range q {
		args = append(args, r.Hold, tokens[from:ends[i]])
		from = ends[i]
	}
	return args
}

// Renewed is what renew.lua reports of one hold.
type Renewed uint8

// The results of a renewal.
const (
	RenewGone      Renewed = iota // the hold does not stand with that token
	RenewOK                       // it lasts for its TTL from now on
	RenewContended                // the same, and another hold waits for the lock
)

// OK reports whether the hold lasts for its TTL from now on.
func (r Renewed) OK() bool { return r == RenewOK || r == RenewContended }

// RenewReply is the reply to a Renew.
type RenewReply struct {
	Micros  int64            // the server's time
	Stale   bool             // nothing was done: the client has not read the master's current marker
	Renewed []Renewed        // of each hold
	Broken  map[int]*Breaker // of the holds that are gone because an operator broke them, by their index
}

// ReadRenew reads the reply to a Renew of n holds.
func ReadRenew(result rueidis.RedisResult, n int) (RenewReply, error) {
	f := read(result)
	reply := RenewReply{Micros: f.number(aTime), Renewed: make([]Renewed, n)}
	if reply.Stale = !f.more; reply.Stale {
		return end(&f, reply)
	}
	for i := range reply.Renewed {
		reply.Renewed[i] = RenewOK
	}
	others := int64(n) - f.number(field{is: "number of leases", most: int64(n)})
	for ; others > 0 && f.err == nil; others-- {
		i := int(f.number(field{is: "number of a lease", most: int64(n)})) - 1
		if i < 0 || reply.Renewed[i] != RenewOK {
			f.malformed("number of a lease")
			break
		}
		if by := f.breaker(); by != nil {
			if reply.Broken == nil {
				reply.Broken = make(map[int]*Breaker)
			}
			reply.Broken[i], reply.Renewed[i] = by, RenewGone
			continue
		}
		if reply.Renewed[i] = Renewed(f.number(status(int64(RenewContended)))); reply.Renewed[i] == RenewOK {
			f.malformed("status")
		}
	}
	return end(&f, reply)
}
