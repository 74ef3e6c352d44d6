package wire

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Order is how a hold queues.
type Order string

// The orders.
const (
	NoQueue   Order = "0" // not at all: the hold enters now or is refused
	ByArrival Order = "a" // where one master decides
	ByHold    Order = "h" // by hold id, which all masters order alike
)

// Acquire takes the lock for a hold, or queues the hold: acquire.lua.
type Acquire struct {
	Hold    string
	TTL     Millis
	Order   Order
	Details string   // Details.Text
	Adopts  Adoption // of the hold that the details convert, if another client has detached it
}

// Adoption proves that a hold was detached: its token, and the secret of its mark. The zero value is none.
type Adoption struct {
	Token  fencing.Token
	Secret string
}

// Args appends the arguments.
func (q Acquire) Args(to []string) []string {
	to = append(to, q.Hold, string(q.TTL), string(q.Order), q.Details)
	if q.Adopts.Token > 0 {
		to = append(to, tokenArg(q.Adopts.Token), q.Adopts.Secret)
	}
	return to
}

// ReadAcquire reads the reply.
func ReadAcquire(result rueidis.RedisResult) (HoldReply, error) {
	f, h := readHold(result, []Status{
		0: Queued, 1: Granted, 2: Refused, 3: Tombstoned, 4: Abstains, 5: Changed, 7: Rival,
	})
	switch h.Status {
	case Granted:
		h.First = f.first(h.Token)
	case Tombstoned:
		h.Broken = f.breaker()
	case Queued, Refused:
		hold, left, held := f.word(), f.millis(anyDuration), f.millis(anyDuration)
		h.Holder = readHolder(f.text(), hold, left, held)
	}
	return end(&f, h)
}

// readHolder returns the holder with these details. Another client wrote them, perhaps of a later version, so details
// that cannot be read are left out: an error without a holder is better than none.
func readHolder(details, hold string, remaining, held time.Duration) *Holder {
	d, ok := ParseDetails(details)
	if !ok {
		return nil
	}
	owner := d.Owner
	if owner == "" {
		owner = hold
	}
	return &Holder{
		Owner: owner, Hold: hold, Meta: d.Meta, Mode: d.Mode, Count: 1, Shared: d.Block > 0, Ended: d.Route == noRoute,
		Detached: d.mark != "", Remaining: remaining, Held: held,
	}
}
