package wire

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Status is what a script reports of one hold. The scripts have different numbers for the same status, and each has
// some of them.
type Status uint8

const (
	_          Status = iota // no reply has the zero value
	Granted                  // the hold stands, with a token
	Queued                   // the hold waits
	Refused                  // of an acquire: neither; of a raise: the hold does not stand, or another was counted since
	Absent                   // of a join: the owner holds nothing; of a yield or a regain: the hold is not there
	OnlyReads                // of a join for writing: the owner only reads
	Tombstoned               // the hold was released before its request arrived
	Abstains                 // the master has no vote
	Changed                  // the marker that the client has seen was read from another server, or has changed since
	ClockAhead               // of a raise: the token is too far ahead of the master's clock
	Rival                    // of an upgrade: another reader is upgrading already
)

// HoldReply is the reply of the scripts about one hold: acquire, join, raise, yield and regain.
type HoldReply struct {
	Status Status
	Token  fencing.Token // of a grant
	First  fencing.Token // the first token of the block that ends with Token; 0 if the grant has no block
	// Left is the time that is left of a grant, if that is less than the TTL that was asked for; until something may
	// expire for a hold that is queued or refused, or 0 if that is unknown; and until the master votes again if it
	// abstains, or 0 if a client has to give it a marker first.
	Left   time.Duration
	Micros int64        // the server's time
	Mode   fencing.Mode // of the hold that a join has joined
	Count  int          // of the owner's holds, for a join
	Holder *Holder      // in the way of an acquire that was not granted; nil if there is none, or if it is unreadable
	Broken *Breaker     // the operator that broke a tombstoned hold; nil if none did
}

// Holder is one granted hold as a master reports it, with the fields of rwlock.Holder.
type Holder struct {
	Owner, Hold string
	Meta        string
	Mode        fencing.Mode
	Count       int
	Token       fencing.Token // of an InspectReply; of a broken hold the one that it had
	Broken      bool          // of an InspectReply: the hold cannot be renewed any more
	BrokenBy    string        // who broke it
	BrokenWhy   string
	Shared      bool // the goroutines of a process share it
	Ended       bool // its client has released it, and it stands until its minimum
	Detached    bool // its client has left it to another one, or has tried to
	Lingering   bool // in no reply: only its process knows
	Remaining   time.Duration
	Held        time.Duration
}

// readHold reads the first fields, which all these replies have: status, token, ms left, server us. statuses translates
// the numbers of the script.
func readHold(f *reader, statuses []Status) (h HoldReply) {
	h.Status = statuses[f.number(status(int64(len(statuses))-1))]
	if h.Status == 0 {
		f.malformed("status")
	}
	h.Token = fencing.Token(f.number(aToken))
	if h.Status == Granted && h.Token == 0 {
		f.malformed("token of a grant")
	}
	left := aDuration
	if h.Status == Abstains {
		left = anyDuration // a quarantine that was written while the clock was ahead may be of any length
	}
	h.Left = f.millis(left)
	if h.Status == Granted && h.Left == 0 {
		f.malformed("time of a grant")
	}
	h.Micros = f.number(aTime)
	return h
}

// leastTime is less than the time of any server, and more than a number with another meaning: 1973.
const leastTime = 1e14

// asAsked is the time that is left of a grant where a reply does not say it: at least the TTL of the request.
const asAsked = time.Duration(maxMillis) * time.Millisecond

type Order string

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
	Made    string   // the request of an Acquire that may be this one, which Args then needs not make: see NewHold
}

// Adoption proves that a hold was detached: its token, and the secret of its mark. The zero value is none.
type Adoption struct {
	Token  fencing.Token
	Secret string
}

// Args appends the request and the details. Their vote follows, and then that it is not to queue, and the adoption.
func (q Acquire) Args(to []string) []string {
	var array [requestLen]byte
	request := q.Made
	if made := q.appendRequest(array[:0]); string(made) != request {
		request = string(made)
	}
	if to = append(to, request, q.Details); q.Order == NoQueue || q.Adopts.Token > 0 {
		to = append(to, string(NoQueue))
	}
	if q.Adopts.Token > 0 {
		to = append(to, tokenArg(q.Adopts.Token), q.Adopts.Secret)
	}
	return to
}

// The widths of a request, which are those of field w in lock.lua.
const (
	holdLen    = 26
	ttlDigits  = 8
	requestLen = holdLen + ttlDigits + 1
)

// appendRequest appends the hold, its TTL and its kind as a write hold has them in field w, so that a script needs no
// more than to write them there.
func (q Acquire) appendRequest(to []byte) []byte {
	to = append(to, q.Hold...)
	for range ttlDigits - len(q.TTL) {
		to = append(to, ' ')
	}
	return append(append(to, q.TTL...), q.kind())
}

// detailsInField is how long the details in field d of a lock are at the most. The rest is in another field.
const detailsInField = 64

// kind returns the last character of field w for a write hold that stands alone, and for a read hold a letter.
func (q Acquire) kind() byte {
	mode, rest, _ := strings.Cut(q.Details, " ")
	_, owner, _ := strings.Cut(rest, " ")
	shared := strings.HasPrefix(owner, "+")
	owned := !shared && !strings.HasPrefix(owner, "-") && owner[:min(len(owner), holdLen)] != q.Hold
	switch {
	case mode != "r":
	case shared:
		return 's'
	case owned:
		return 'n'
	default:
		return 'r'
	}
	kind := byte('0')
	if len(q.Details) > detailsInField {
		kind++
	}
	if shared {
		kind += 4
	} else if owned {
		kind += 8
	}
	return kind
}

// Asked are the arguments of an Acquire.
type Asked []string

// IsPlain reports whether it is of a write hold without a named owner and a block, which replaces no other hold.
func (a Asked) IsPlain() bool {
	_, rest, _ := strings.Cut(a[1], " ")
	_, owner, _ := strings.Cut(rest, " ")
	return a.kind() < '2' && strings.HasPrefix(owner, "- ")
}

// Queues reports whether it waits for its turn.
func (a Asked) Queues() bool { return len(a) == 2 }

func (a Asked) kind() byte { return a[0][requestLen-1] }

// IsLike reports whether two are the same but for the hold.
func (a Asked) IsLike(b Asked) bool {
	return a[0][holdLen:] == b[0][holdLen:] && slices.Equal(a[1:], b[1:])
}

func ReadAcquire(result rueidis.RedisResult) (HoldReply, error) {
	if us, ok := integer(result); ok && us > leastTime && us <= int64(fencing.MaxToken) {
		return HoldReply{Status: Granted, Token: fencing.Token(us), Left: asAsked, Micros: us}, nil
	}
	f := read(result)
	if len(f.line) >= behindDetails && f.line[1] != ' ' && f.line[tokenDigits] != ' ' {
		return readBehind(f.line)
	}
	if len(f.line) > tokenDigits && f.line[tokenDigits] == ' ' { // a token, and no status
		h := HoldReply{
			Status: Granted, Token: fencing.Token(f.number(aToken)), Left: asAsked, Micros: f.number(aTime),
		}
		if h.Token == 0 {
			f.malformed("token of a grant")
		}
		h.First = f.first(h.Token)
		return end(&f, h)
	}
	h := readHold(&f, []Status{
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

// The line of a hold that waits or is refused behind a write hold has parts of fixed widths, as behind.lua finds them,
// which begin here. The first is the status, a digit.
const (
	behindTime    = 1 // of the server, in microseconds
	behindRenewed = behindTime + 16
	behindHold    = behindRenewed + 13
	behindTTL     = behindHold + holdLen // from the renewal on
	behindSince   = behindTTL + ttlDigits
	behindDetails = behindSince + 13
)

func readBehind(line string) (HoldReply, error) {
	h := HoldReply{Status: Queued}
	if line[0] == '2' {
		h.Status = Refused
	}
	ok := line[0] == '0' || line[0] == '2'
	number := func(from, to int) int64 {
		n, err := strconv.ParseUint(strings.TrimLeft(line[from:to], " "), 10, 63)
		ok = ok && err == nil
		return int64(n)
	}
	h.Micros = number(behindTime, behindRenewed)
	now := h.Micros / 1000
	left := number(behindRenewed, behindHold) + number(behindTTL, behindSince) - now
	held := max(now-number(behindSince, behindDetails), 0) // the clock may have been set back
	if !ok || left < 0 {
		return HoldReply{}, errors.New("malformed reply: no line of a hold behind another one")
	}
	h.Left = time.Duration(left) * time.Millisecond
	h.Holder = readHolder(line[behindDetails:], line[behindHold:behindTTL], h.Left, time.Duration(held)*time.Millisecond)
	return h, nil
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

// Join is a nested acquisition by another process of the same owner: join.lua.
type Join struct {
	Hold    string
	Owner   string
	Mode    fencing.Mode
	TTL     Millis
	Details string        // Details.Text
	Token   fencing.Token // of the hold to join; 0 for the owner's largest
}

func (q Join) Args(to []string) []string {
	return append(to, q.Hold, q.Owner, modeArg(q.Mode), string(q.TTL), q.Details, tokenArg(q.Token))
}

func ReadJoin(result rueidis.RedisResult) (HoldReply, error) {
	f := read(result)
	h := readHold(&f, []Status{
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

// Raise raises the token of a hold to the token that a quorum agreed on: raise.lua.
type Raise struct {
	Hold  string
	Token fencing.Token
}

func (q Raise) Args(to []string) []string { return append(to, q.Hold, tokenArg(q.Token)) }

func ReadRaise(result rueidis.RedisResult) (HoldReply, error) {
	f := read(result)
	h := readHold(&f, []Status{0: Refused, 1: Granted, 4: Abstains, 5: Changed, 6: ClockAhead})
	return end(&f, h)
}

// Yield puts a hold without a quorum back into the queue, if a hold that goes before it waits: yield.lua.
type Yield struct {
	Hold  string
	Token fencing.Token // of the grant
	Leave bool          // gives the grant back in any case, and the hold does not wait there any more
}

func (q Yield) Args(to []string) []string {
	if to = append(to, q.Hold, tokenArg(q.Token)); q.Leave {
		to = append(to, "1")
	}
	return to
}

// ReadYield reads the reply. A grant that is kept, or has come back at once, has a larger token.
func ReadYield(result rueidis.RedisResult) (HoldReply, error) {
	f := read(result)
	h := readHold(&f, []Status{0: Queued, 1: Granted, 2: Absent, 4: Abstains, 5: Changed})
	if h.Status == Granted {
		h.First = f.first(h.Token)
	}
	return end(&f, h)
}

// Regain has a master take a hold again that it has lost and a quorum still has, or set its own late grant of the hold
// to the token of the quorum: regain.lua.
type Regain struct {
	Hold    string
	TTL     Millis
	Token   fencing.Token
	Details string        // Details.Text
	Trusted bool          // the client's trust in the grant of this very master has not run out
	Own     fencing.Token // of this very master's last grant that the client knows, if larger than Token; else 0
}

func (q Regain) Args(to []string) []string {
	to = append(to, q.Hold, string(q.TTL), tokenArg(q.Token), q.Details, flagArg(q.Trusted))
	if q.Own > 0 {
		to = append(to, tokenArg(q.Own))
	}
	return to
}

func ReadRegain(result rueidis.RedisResult) (HoldReply, error) {
	f := read(result)
	h := readHold(&f, []Status{0: Absent, 1: Granted, 2: Queued, 4: Abstains, 5: Changed})
	return end(&f, h)
}
