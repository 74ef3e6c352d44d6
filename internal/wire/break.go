package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Break takes a hold away from its process: break.lua.
type Break struct {
	Hold   string
	AtOnce bool
	Late   Millis // for how long requests of the hold may still be on their way
	By     Breaker
}

func (q Break) Args(to []string) []string {
	return append(to, q.Hold, flagArg(q.AtOnce), string(q.Late), q.By.text())
}

// Breaker names the operator that broke a hold, and the reason. It is the error of the hold's client.
type Breaker struct{ Who, Why string }

func (b *Breaker) Error() string { return fmt.Sprintf("broken by %q: %q", b.Who, b.Why) }

// text returns the length of Who, and both: each may have any bytes.
func (b *Breaker) text() string { return strconv.Itoa(len(b.Who)) + ":" + b.Who + b.Why }

// readBreaker returns nil for a text that no Break has.
func readBreaker(text string) *Breaker {
	digits, both, found := strings.Cut(text, ":")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 || n > len(both) {
		return nil
	}
	return &Breaker{both[:n], both[n:]}
}

// Broken is what the hold of a Break is now.
type Broken uint8

// The states of a hold that is broken.
const (
	BreakGone    Broken = iota // it was gone before
	BreakStands                // it stands for BreakReply.Left, and cannot be renewed
	BreakGranted               // it was granted, and has ended
	BreakWaiting               // it was waiting, and has ended
)

// BreakReply is the reply to a Break.
type BreakReply struct {
	Broken Broken
	Left   time.Duration // of a hold that stands
	Micros int64         // the server's time
	More   More
}

func ReadBreak(result rueidis.RedisResult) (BreakReply, error) {
	f := read(result)
	return end(&f, BreakReply{
		Broken: Broken(f.number(status(int64(BreakWaiting)))), Left: f.millis(aDuration), Micros: f.number(aTime),
		More: More(f.number(moreWork)),
	})
}
