package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Renew sets a new expiry for granted holds, of any locks: renew.lua.
type Renew []*Renewal

// Renewal is one hold of a Renew.
type Renewal struct {
	Key   string
	Hold  string
	TTL   Millis
	Token fencing.Token
	Mark  string // the hold is left to the client that has its secret; "" for most. Such a renewal is alone in its call
}

// MarkOf returns the mark of a hold that is left to another client: the hash of a secret that only its ticket has.
func MarkOf(secret string) string {
	sum := sha1.Sum([]byte(secret)) // scripts have no other hash, and nobody profits from two secrets with one hash
	return hex.EncodeToString(sum[:])
}

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
	const digits = 16 // of the largest token
	text, ends := make([]byte, 0, digits*len(q)), make([]int, len(q))
	for i, r := range q {
		text = strconv.AppendUint(text, uint64(r.Token), 10)
		ends[i] = len(text)
	}
	tokens, from, args := string(text), 0, make([]string, 0, 3*len(q))
	for i, r := range q {
		args = append(args, r.Hold, string(r.TTL), tokens[from:ends[i]])
		from = ends[i]
	}
	if len(q) == 1 && q[0].Mark != "" {
		args = append(args, q[0].Mark)
	}
	return args
}

// Renewed is what renew.lua reports of one hold.
type Renewed uint8

// The results of a renewal.
const (
	RenewGone        Renewed = iota // the hold does not stand with that token
	RenewOK                         // it lasts for its TTL from now on
	RenewContended                  // the same, and another hold waits for the lock
	RenewStaleMarker                // nothing was done: the client has not read the master's current marker
)

// OK reports whether the hold lasts for its TTL from now on.
func (r Renewed) OK() bool { return r == RenewOK || r == RenewContended }

// RenewReply is the reply to a Renew.
type RenewReply struct {
	Micros  int64            // the server's time
	Renewed []Renewed        // of each hold
	Broken  map[int]*Breaker // of the holds that are gone because an operator broke them, by their index
}

// ReadRenew reads the reply to a Renew of n holds.
func ReadRenew(result rueidis.RedisResult, n int) (RenewReply, error) {
	f := read(result)
	reply := RenewReply{Micros: f.number(aTime), Renewed: make([]Renewed, n)}
	for i := range reply.Renewed {
		if by := f.breaker(); by != nil {
			if reply.Broken == nil {
				reply.Broken = make(map[int]*Breaker)
			}
			reply.Broken[i] = by
			continue
		}
		reply.Renewed[i] = Renewed(f.number(status(int64(RenewStaleMarker))))
	}
	return end(&f, reply)
}
