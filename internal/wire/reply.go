package wire

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// ErrCounter is the error of a reply of a server whose counter of the lock cannot have been written by this library:
// numbers from there on are no tokens.
var ErrCounter = errors.New("the lock's counter is past the largest token, 2^53 - 1")

// field is what one number of a reply may be: from 0 to most.
type field struct {
	is     string // in the error
	most   int64
	bounds bool  // a number outside is the nearest that fits, and no error
	err    error // in place of "malformed reply"
}

var (
	aToken    = field{most: int64(fencing.MaxToken), err: ErrCounter} // or 0 for none
	aTime     = field{is: "time", most: math.MaxInt64}                // of the server, in microseconds
	aDuration = field{is: "duration", most: maxMillis}                // that is left, or has passed
	// anyDuration is wrong if the server's clock was set since.
	anyDuration = field{most: maxMillis, bounds: true}
	anyCounter  = field{most: math.MaxInt64, bounds: true}
	moreWork    = field{is: "work that is left", most: int64(MoreReads)}
)

// status is a number of a script that has so many of them.
func status(most int64) field { return field{is: "status", most: most} }

// reader reads the fields of a reply in turn. Its first error stays, and the fields after it are zero.
type reader struct {
	list []rueidis.RedisMessage // of a list: the fields that are left; nil for a line
	line string                 // of a line: the fields that are left
	more bool                   // a field is left
	read int                    // how many fields have been read
	err  error
}

func read(r rueidis.RedisResult) reader {
	message, err := r.ToMessage()
	if err == nil && message.IsString() {
		line, err := message.ToString()
		return reader{line: line, more: true, err: err}
	}
	if err != nil {
		return reader{err: err}
	}
	list, err := message.ToArray()
	return reader{list: list, more: len(list) > 0, err: err}
}

// integer returns a reply that is one integer.
func integer(r rueidis.RedisResult) (n int64, ok bool) {
	message, err := r.ToMessage()
	if err != nil || !message.IsInt64() {
		return 0, false
	}
	n, err = message.AsInt64()
	return n, err == nil
}

// end returns a reply of which every field must have been read, or an empty one with the error.
func end[Reply any](r *reader, reply Reply) (Reply, error) {
	if r.err == nil && r.more {
		r.err = fmt.Errorf("malformed reply: fields after the first %d", r.read)
	}
	if r.err != nil {
		return *new(Reply), r.err
	}
	return reply, nil
}

// malformed records that the field that was read last is wrong.
func (r *reader) malformed(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("malformed reply: field %d is no %s", r.read, what)
	}
}

func (r *reader) missing() {
	if r.err == nil {
		r.err = fmt.Errorf("malformed reply of %d fields", r.read)
	}
}

// number reads a number. It is 0 after an error.
func (r *reader) number(of field) (n int64) {
	if r.err != nil || !r.more {
		r.missing()
		return 0
	}
	var err error
	if r.list == nil {
		var text string
		text, r.line, r.more = strings.Cut(r.line, " ")
		n, err = strconv.ParseInt(text, 10, 64)
		if errors.Is(err, strconv.ErrRange) { // n is the nearest that fits, and the field's own limit says what is wrong
			err = nil
		}
	} else {
		n, err = r.list[0].ToInt64()
		r.list = r.list[1:]
		r.more = len(r.list) > 0
	}
	r.read++
	switch {
	case err != nil:
		r.malformed("integer")
	case n >= 0 && n <= of.most:
		return n
	case of.bounds:
		return min(max(n, 0), of.most)
	case of.err != nil:
		r.err = of.err
	default:
		r.malformed(of.is)
	}
	return 0
}

func (r *reader) millis(of field) time.Duration {
	return time.Duration(r.number(of)) * time.Millisecond
}

// word reads a text without spaces.
func (r *reader) word() string {
	word, rest, more := strings.Cut(r.line, " ")
	if r.err != nil || !more { // the last one, or in a list
		return r.text()
	}
	r.line, r.read = rest, r.read+1
	return word
}

// text reads a text, which is the last field of a line.
func (r *reader) text() (text string) {
	if r.err != nil || !r.more {
		r.missing()
		return ""
	}
	r.read++
	if r.list == nil {
		r.more = false
		return r.line
	}
	f := &r.list[0]
	r.list = r.list[1:]
	r.more = len(r.list) > 0
	text, err := f.ToString()
	if err != nil || !f.IsString() {
		r.malformed("text")
		return ""
	}
	return text
}

// first reads the first token of the block that ends with last, if the reply has it.
func (r *reader) first(last fencing.Token) fencing.Token {
	if !r.more {
		return 0
	}
	first := fencing.Token(r.number(aToken))
	if first == 0 || first > last {
		r.malformed("first token of a block")
	}
	return first
}

// breaker reads the next field if it is a text, in place of a status.
func (r *reader) breaker() *Breaker {
	if r.err != nil || !r.more || r.list != nil && !r.list[0].IsString() {
		return nil
	}
	by := readBreaker(r.text())
	if by == nil {
		r.malformed("reason of a break")
	}
	return by
}
