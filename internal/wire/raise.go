package wire

import (
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Raise raises the token of a hold to the token that a quorum agreed on: raise.lua.
type Raise struct {
	Hold  string
	Token fencing.Token
}

// Args appends the arguments.
func (q Raise) Args(to []string) []string { return append(to, q.Hold, tokenArg(q.Token)) }

// ReadRaise reads the reply.
func ReadRaise(result rueidis.RedisResult) (HoldReply, error) {
	f, h := readHold(result, []Status{0: Refused, 1: Granted, 4: Abstains, 5: Changed, 6: ClockAhead})
	return end(&f, h)
}
