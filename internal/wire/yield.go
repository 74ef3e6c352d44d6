package wire

import (
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Yield puts a hold without a quorum back into the queue, if a hold that goes before it waits: yield.lua.
type Yield struct {
	Hold  string
	Token fencing.Token // of the grant
}

// Args appends the arguments.
func (q Yield) Args(to []string) []string { return append(to, q.Hold, tokenArg(q.Token)) }

// ReadYield reads the reply. A grant that is kept, or has come back at once, has a larger token.
func ReadYield(result rueidis.RedisResult) (HoldReply, error) {
	f, h := readHold(result, []Status{0: Queued, 1: Granted, 2: Absent, 4: Abstains, 5: Changed})
	if h.Status == Granted {
		h.First = f.first(h.Token)
	}
	return end(&f, h)
}
