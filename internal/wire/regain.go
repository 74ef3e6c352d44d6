package wire

import (
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Regain has a master take a hold again that it has lost and a quorum still has, or set its own late grant of the hold
// to the token of the quorum: regain.lua.
type Regain struct {
	Hold    string
	TTL     Millis
	Token   fencing.Token
	Details string // Details.Text
	Trusted bool   // the client's trust in the grant of this very master has not run out
}

// Args appends the arguments.
func (q Regain) Args(to []string) []string {
	return append(to, q.Hold, string(q.TTL), tokenArg(q.Token), q.Details, flagArg(q.Trusted))
}

// ReadRegain reads the reply.
func ReadRegain(result rueidis.RedisResult) (HoldReply, error) {
	f, h := readHold(result, []Status{0: Absent, 1: Granted, 2: Queued, 4: Abstains, 5: Changed})
	return end(&f, h)
}
