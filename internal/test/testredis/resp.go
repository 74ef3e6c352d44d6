package testredis

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errNotRESP marks a byte stream that a framer cannot cut into messages.
var errNotRESP = errors.New("testredis: not RESP")

// errShort marks a message of which more bytes are to come.
var errShort = errors.New("testredis: incomplete message")

// Sizes and depths beyond these are noise that happens to look like RESP.
const (
	maxRESP  = 512 << 20
	maxDepth = 32
)

// framer cuts a byte stream into whole RESP messages. A stream that is not RESP is passed on as it
// comes, so that no byte is ever held back for want of an understanding.
type framer struct {
	rest []byte
	raw  bool
}

// feed takes the next bytes of the stream and returns the messages that they complete.
func (f *framer) feed(p []byte) [][]byte {
	if f.raw {
		return [][]byte{bytes.Clone(p)}
	}
	f.rest = append(f.rest, p...)
	var frames [][]byte
	for len(f.rest) > 0 {
		n, err := messageLen(f.rest)
		if errors.Is(err, errShort) {
			return frames
		}
		if err != nil {
			f.raw = true
			return append(frames, f.flush())
		}
		frames = append(frames, bytes.Clone(f.rest[:n]))
		f.rest = f.rest[n:]
	}
	f.rest = nil
	return frames
}

// flush returns what is left of the stream at its end.
func (f *framer) flush() []byte {
	rest := f.rest
	f.rest = nil
	return rest
}

// header reads the first line of a message: its type, the number in it, and where the line ends.
func header(b []byte) (kind byte, n, end int, err error) {
	if len(b) == 0 {
		return 0, 0, 0, errShort
	}
	kind = b[0]
	if bytes.IndexByte([]byte("*$!~>%|+-:,(#_="), kind) < 0 {
		return kind, 0, 0, errNotRESP
	}
	eol := bytes.Index(b, []byte("\r\n"))
	if eol < 0 {
		return kind, 0, 0, errShort
	}
	if bytes.IndexByte([]byte("*$!~>%|="), kind) < 0 {
		return kind, 0, eol + 2, nil
	}
	n, convErr := strconv.Atoi(string(b[1:eol]))
	if convErr != nil || n > maxRESP {
		return kind, 0, 0, errNotRESP
	}
	return kind, n, eol + 2, nil
}

// messageLen returns the length in bytes of the message at the start of b.
func messageLen(b []byte) (int, error) { return nestedLen(b, 0) }

func nestedLen(b []byte, depth int) (int, error) {
	if depth > maxDepth {
		return 0, errNotRESP
	}
	kind, n, end, err := header(b)
	if err != nil {
		return 0, err
	}
	switch kind {
	case '$', '!', '=':
		if n < 0 {
			return end, nil
		}
		if len(b) < end+n+2 {
			return 0, errShort
		}
		return end + n + 2, nil
	case '%':
		n *= 2
	case '|': // attributes: a map, followed by the message that they belong to
		n = n*2 + 1
	}
	for range n {
		inner, err := nestedLen(b[end:], depth+1)
		if err != nil {
			return 0, err
		}
		end += inner
	}
	return end, nil
}

// elements returns the elements of an array or push as text, nil if there are none; a nested array is
// left as RESP.
func elements(frame []byte) []string {
	kind, n, end, err := header(frame)
	if err != nil || n < 1 || (kind != '*' && kind != '>') {
		return nil
	}
	out := make([]string, 0, n)
	for range n {
		size, err := messageLen(frame[end:])
		if err != nil {
			return nil
		}
		out = append(out, text(frame[end:end+size]))
		end += size
	}
	return out
}

// text returns the payload of a scalar message.
func text(msg []byte) string {
	kind, n, end, err := header(msg)
	if err != nil {
		return ""
	}
	switch kind {
	case '$', '=':
		return string(msg[end : end+max(n, 0)])
	case '*', '>', '~', '%':
		return string(msg)
	default:
		return string(msg[1 : end-2])
	}
}

// value decodes a message of RESP2, or a script's reply of RESP3: string, int64, nil, or []any of these; an error reply
// is an error.
func value(msg []byte) (any, error) {
	kind, n, end, err := header(msg)
	if err != nil {
		return nil, err
	}
	switch kind {
	case '-':
		return nil, errors.New(text(msg))
	case ':':
		return strconv.ParseInt(text(msg), 10, 64)
	case '+':
		return text(msg), nil
	case '_':
		return nil, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		return text(msg), nil
	case '*':
		if n < 0 {
			return nil, nil
		}
		list := make([]any, 0, n)
		for range n {
			size, err := messageLen(msg[end:])
			if err != nil {
				return nil, err
			}
			item, err := value(msg[end : end+size])
			if err != nil {
				item = err
			}
			list = append(list, item)
			end += size
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: type %q", errNotRESP, kind)
}
