package rwlock

import (
	"bytes"
	"errors"
	"net"
)

// greeting is what a server says first on a connection. One that takes no more connections says why, unasked, and
// closes this one. Its client has sent the first commands by then, takes the end of the connection for the answer to
// each of them, and would tell of EOF only.
type greeting struct {
	heard []byte // as long as it may be a refusal
	over  bool   // it was none
}

// turnedAway are the beginnings of what such a server says. It says nothing else before or after it.
var turnedAway = [][]byte{[]byte("-ERR max number of clients"), []byte("-DENIED ")}

// hear takes in what was read first, and the error that ended reading. A refusal counts as a failure to connect:
// nothing that was sent has run.
func (g *greeting) hear(conn net.Conn, read []byte, err error) error {
	g.heard = append(g.heard, read...)
	line, more, whole := bytes.Cut(g.heard, []byte("\r\n"))
	switch refusal := begins(line, turnedAway); {
	case !refusal || len(more) > 0:
		*g = greeting{over: true}
	case err != nil && whole:
		return &net.OpError{Op: "dial", Addr: conn.RemoteAddr(), Err: errors.New(string(line[1:]))}
	}
	return err
}

// begins reports whether the line begins with one of these, as far as it has been read.
func begins(line []byte, with [][]byte) bool {
	for _, w := range with {
		if bytes.HasPrefix(line, w) || bytes.HasPrefix(w, line) {
			return true
		}
	}
	return false
}
