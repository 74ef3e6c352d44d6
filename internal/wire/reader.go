package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// ErrCounter is the error of a reply of a server whose counter of the lock cannot have been written by this library:
// numbers from there on are no tokens.
var ErrCounter = errors.New("the lock's counter is past the largest token, 2^53 - 1")

// reader reads the fields of a reply in turn. Its first error stays, and the fields after it are zero.
type reader struct {
	fields []rueidis.RedisMessage
	next   int
	err    error
}

func read(r rueidis.RedisResult) reader {
	fields, err := r.ToArray()
	return reader{fields: fields, err: err}
}

func (r *reader) left() int { return len(r.fields) - r.next }

// end returns the error of the reply. Every field must have been read.
func (r *reader) end() error {
	if r.err == nil && r.left() > 0 {
		r.err = fmt.Errorf("malformed reply of %d fields", len(r.fields))
	}
	return r.err
}

// malformed records that the field that was read last is wrong.
func (r *reader) malformed(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("malformed reply: field %d is no %s", r.next, what)
	}
}

func (r *reader) field() *rueidis.RedisMessage {
	if r.err == nil && r.left() == 0 {
		r.err = fmt.Errorf("malformed reply of %d fields", len(r.fields))
	}
	if r.err != nil {
		return nil
	}
	r.next++
	return &r.fields[r.next-1]
}

func (r *reader) integer() int64 {
	f := r.field()
	if f == nil {
		return 0
	}
	n, err := f.ToInt64()
	if err != nil {
		r.malformed("integer")
	}
	return n
}

func (r *reader) text() string {
	f := r.field()
	if f == nil {
		return ""
	}
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
