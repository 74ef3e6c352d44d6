package wire

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Release ends a hold, granted or waiting, and hands the lock to the waiters that may enter: release.lua.
type Release struct {
	Hold      string
	Tombstone Tombstone
	Others    []string // other holds of this client for the lock, without tombstones; at most 1000
	Minimum   Minimum  // without Others
	Outrun    Outrun
}

// Outrun has a master set back a counter that is ahead of its clock. Token is the token of the lease, and Grant the
// larger token of this very master's grant. The zero value leaves the counter.
type Outrun struct{ Token, Grant fencing.Token }

// Minimum has a master keep a granted hold as ended until Least has passed since its grant, and for at most Rest from
// now. The zero value keeps nothing.
type Minimum struct{ Least, Rest time.Duration }

// Tombstone is what a release leaves for an acquire of its hold that arrives later. The zero value leaves nothing.
type Tombstone struct {
	TTL Millis // how long such an acquire may still be on its way; "" if its answer is known
	// Strays: several acquires may be, or something else that brings the hold back. So the tombstone stays where the
	// release finds the hold, and where an acquire finds the tombstone.
	Strays bool
	// Again: the client may send the one acquire again by itself. The tombstone stays where an acquire finds it.
	Again bool
}

func (t Tombstone) comes() string {
	switch {
	case t.Strays:
		return "1"
	case t.Again:
		return "2"
	default:
		return "0"
	}
}

func (q Release) Args(to []string) []string {
	to = append(to, q.Hold)
	if q.Tombstone.TTL == "" && len(q.Others) == 0 && q.Minimum.Rest <= 0 && q.Outrun.Grant == 0 {
		return to
	}
	to = append(to, string(cmp.Or(q.Tombstone.TTL, NoMillis)))
	comes := q.Tombstone.comes()
	if comes == "0" && len(q.Others) == 0 && q.Minimum.Rest <= 0 && q.Outrun.Grant == 0 {
		return to
	}
	to = append(append(to, comes), q.Others...)
	var last string
	if q.Minimum.Rest > 0 {
		rest := q.Minimum.Rest + time.Millisecond - 1 // rounded up: a rest of 0 would be none
		last = string(FormatMillis(q.Minimum.Least)) + " " + string(FormatMillis(rest))
	}
	if q.Outrun.Grant > 0 {
		last = cmp.Or(last, "0 0") + " " + tokenArg(q.Outrun.Token) + " " + tokenArg(q.Outrun.Grant)
	}
	if last != "" {
		to = append(to, last)
	}
	return to
}

// Released is what the hold of a Release was.
type Released uint8

const (
	WasGone    Released = iota
	WasGranted          // or had expired, and was not purged
	WasWaiting
)

// ReleaseReply is the reply to a Release, about its first hold.
type ReleaseReply struct {
	Was    Released
	Micros int64 // the server's time; 0 if the script did not read it
	More   More
	Broken *Breaker // the operator that broke it; nil if none did
}

func ReadRelease(result rueidis.RedisResult) (ReleaseReply, error) {
	if n, ok := integer(result); ok && n == 1 {
		return ReleaseReply{Was: WasGranted}, nil
	}
	f := read(result)
	return end(&f, ReleaseReply{
		Was: Released(f.number(status(int64(WasWaiting)))), Micros: f.number(aTime), More: More(f.number(moreWork)),
		Broken: f.breaker(),
	})
}

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
type Breaker struct {
	Who, Why string
	Now      bool // the lock is not kept for the holder
}

func (b *Breaker) Error() string { return fmt.Sprintf("broken by %q: %q", b.Who, b.Why) }

// text returns the length of Who, and both: each may have any bytes. A 0 before the length stands for Now.
func (b *Breaker) text() string {
	text := strconv.Itoa(len(b.Who)) + ":" + b.Who + b.Why
	if b.Now {
		return "0" + text
	}
	return text
}

// readBreaker returns nil for a text that no Break has.
func readBreaker(text string) *Breaker {
	digits, both, found := strings.Cut(text, ":")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 || n > len(both) {
		return nil
	}
	return &Breaker{both[:n], both[n:], len(digits) > 1 && digits[0] == '0'}
}

// Broken is what the hold of a Break is now.
type Broken uint8

const (
	BreakGone    Broken = iota // it was gone before
	BreakStands                // it stands for BreakReply.Left, and cannot be renewed
	BreakGranted               // it was granted, and has ended
	BreakWaiting               // it was waiting, and has ended
)

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
