package wire

import (
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Join is a nested acquisition by another process of the same owner: join.lua.
type Join struct {
	Hold    string
	Owner   string
	Mode    fencing.Mode
	TTL     Millis
	Details string        // Details.Text
	Token   fencing.Token // of the hold to join; 0 for the owner's latest
}

// Args appends the arguments.
func (q Join) Args(to []string) []string {
	return append(to, q.Hold, q.Owner, modeArg(q.Mode), string(q.TTL), q.Details, tokenArg(q.Token))
}

// ReadJoin reads the reply.
func ReadJoin(result rueidis.RedisResult) (HoldReply, error) {
	f, h := readHold(result, []Status{
		0: Absent, 1: Granted, 2: OnlyReads, 3: Tombstoned, 4: Abstains, 5: Changed,
	})
	if h.Status == Granted {
		if h.Count = int(f.number(anyCounter)); h.Count == 0 {
			f.malformed("counter")
		}
		var ok bool
		if h.Mode, ok = readMode(f.text()); !ok {
			f.malformed("mode")
		}
	}
	return end(&f, h)
}
