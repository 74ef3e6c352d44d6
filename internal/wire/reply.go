package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// ErrCounter is the error of a reply of a server whose counter of the lock cannot have been written by this library:
// numbers from there on are no tokens.
var ErrCounter = errors.New("the lock's counter is past the largest token, 2^53 - 1")

// reader reads the fields of a reply in turn. Its first error stays, and the fields after it are zero.
type reader struct {
	fields []rueidis.RedisMessage // of a list
	line   string                 // of a line: the fields that are left
	next   int
	inLine bool
	done   bool // of a line: its last field has been read
	err    error
}

func read(r rueidis.RedisResult) reader {
	message, err := r.ToMessage()
	if err == nil && message.IsString() {
		line, err := message.ToString()
		return reader{line: line, inLine: true, err: err}
	}
	if err != nil {
		return reader{err: err}
	}
	fields, err := message.ToArray()
	return reader{fields: fields, err: err}
}

// Fields returns the fields of a reply that was read without its types: int64, string, and lists. It is for programs
// that look at scripts, not for lockers.
func Fields(reply any) (fields []any, ok bool) {
	line, ok := reply.(string)
	if !ok {
		fields, ok = reply.([]any)
		return fields, ok
	}
	parts := strings.SplitN(line, " ", waitingFields)
	for i, part := range parts {
		number, err := strconv.ParseInt(part, 10, 64)
		if len(parts) == waitingFields && (i == 4 || i == 7) { // the holder's id and details
			fields = append(fields, part)
		} else if fields = append(fields, number); err != nil {
			return nil, false
		}
	}
	return fields, true
}

// waitingFields is the number of fields of a reply to an acquire that waits or is refused.
const waitingFields = 8

// isLast reports whether every field has been read.
func (r *reader) isLast() bool {
	if r.inLine {
		return r.done
	}
	return r.next == len(r.fields)
}

// end returns the error of the reply. Every field must have been read.
func (r *reader) end() error {
	if r.err == nil && !r.isLast() {
		r.err = fmt.Errorf("malformed reply: fields after the first %d", r.next)
	}
	return r.err
}

// malformed records that the field that was read last is wrong.
func (r *reader) malformed(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("malformed reply: field %d is no %s", r.next, what)
	}
}

// advance reports whether there is one field more to read.
func (r *reader) advance() bool {
	if r.err == nil && r.isLast() {
		r.err = fmt.Errorf("malformed reply of %d fields", r.next)
	}
	if r.err != nil {
		return false
	}
	r.next++
	return true
}

// cut returns the next field of a line, up to the next space.
func (r *reader) cut() string {
	field, rest, more := strings.Cut(r.line, " ")
	r.line, r.done = rest, !more
	return field
}

func (r *reader) integer() int64 {
	if !r.advance() {
		return 0
	}
	var n int64
	var err error
	if r.inLine {
		n, err = strconv.ParseInt(r.cut(), 10, 64)
		if errors.Is(err, strconv.ErrRange) { // n is the nearest that fits, and the field's own limit says what is wrong
			err = nil
		}
	} else {
		n, err = r.fields[r.next-1].ToInt64()
	}
	if err != nil {
		r.malformed("integer")
	}
	return n
}

// word reads a text without spaces.
func (r *reader) word() string {
	if !r.inLine {
		return r.text()
	}
	if !r.advance() {
		return ""
	}
	return r.cut()
}

// text reads a text, which is the last field of a line.
func (r *reader) text() string {
	if !r.advance() {
		return ""
	}
	if r.inLine {
		r.done = true
		return r.line
	}
	f := &r.fields[r.next-1]
	s, err := f.ToString()
	if err != nil || !f.IsString() {
		r.malformed("text")
		return ""
	}
	return s
}

// micros reads the server's time.
func (r *reader) micros() int64 {
	n := r.integer()
	if n < 0 {
		r.malformed("time")
	}
	return max(n, 0)
}

// millis reads a time that is left, or has passed.
func (r *reader) millis() time.Duration {
	n := r.integer()
	if n < 0 || n > maxMillis {
		r.malformed("duration")
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// atMost reads a duration of any length: one below 0 is 0, and one that is too long is the longest. It is for durations
// that are wrong if the server's clock was set since.
func (r *reader) atMost() time.Duration { return bounded(r.integer()) }

func bounded(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), maxMillis)) * time.Millisecond
}

// token reads a token, or 0 for none.
func (r *reader) token() fencing.Token {
	n := r.integer()
	if n != 0 && !isToken(n) {
		if r.err == nil {
			r.err = ErrCounter
		}
		return 0
	}
	return fencing.Token(n)
}

func (r *reader) mode() fencing.Mode {
	m, ok := readMode(r.text())
	if !ok {
		r.malformed("mode")
	}
	return m
}

// Status is what a script reports of one hold. The scripts have different numbers for the same status, and each has
// some of them.
type Status uint8

// The statuses of a HoldReply.
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
	// Left is the time that is left of a grant; until something may expire for a hold that is queued or refused, or 0 if
	// that is unknown; and until the master votes again if it abstains, or 0 if a client has to give it a marker first.
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
	Shared      bool          // the goroutines of a process share it
	Ended       bool          // its client has released it, and it stands until its minimum
	Detached    bool          // its client has left it to another one, or has tried to
	Lingering   bool          // in no reply: only its process knows
	Remaining   time.Duration
	Held        time.Duration
}

// readHold reads the first fields, which all these replies have: status, token, ms left, server us. statuses translates
// the numbers of the script.
func readHold(result rueidis.RedisResult, statuses []Status) (f reader, h HoldReply) {
	f = read(result)
	status := f.integer()
	if status >= 0 && status < int64(len(statuses)) {
		h.Status = statuses[status]
	}
	if h.Status == 0 {
		f.malformed("status")
	}
	h.Token = f.token()
	if h.Status == Granted && h.Token == 0 {
		f.malformed("token of a grant")
	}
	if h.Status == Abstains {
		h.Left = f.atMost() // a quarantine that was written while the clock was ahead may be of any length
	} else {
		h.Left = f.millis()
	}
	if h.Status == Granted && h.Left == 0 {
		f.malformed("time of a grant")
	}
	h.Micros = f.micros()
	return f, h
}

// first reads the first token of the block that ends with last, if the reply has it.
func (r *reader) first(last fencing.Token) fencing.Token {
	if r.isLast() {
		return 0
	}
	first := r.token()
	if first == 0 || first > last {
		r.malformed("first token of a block")
	}
	return first
}

// ended returns a reply that has been read, or an empty one with the error.
func (r *reader) ended(h HoldReply) (HoldReply, error) {
	if err := r.end(); err != nil {
		return HoldReply{}, err
	}
	return h, nil
}

// breaker reads the next field if it is a text, in place of a status.
func (r *reader) breaker() *Breaker {
	if r.err != nil || r.isLast() || !r.inLine && !r.fields[r.next].IsString() {
		return nil
	}
	by := readBreaker(r.text())
	if by == nil {
		r.malformed("reason of a break")
	}
	return by
}
