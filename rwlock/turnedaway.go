package rwlock

import (
	"bytes"
	"errors"
	"net"
)

// greeting is the first text that a server sends on a connection. A server that accepts no more connections sends the
// reason without a request, and closes the connection. The client has sent its first commands by then. It takes the end
// of the connection for the answer to each of them, and would report only EOF.
type greeting struct {
	heard []byte // kept while it may be a refusal
	over  bool   // it was no refusal
}

// turnedAway has the beginnings of such refusals. The server sends nothing else before or after them.
var turnedAway = [][]byte{[]byte("-ERR max number of clients"), []byte("-DENIED ")}

// hear takes the first text that was read, and the error that ended reading. It returns a refusal as a failure to
// connect, because no command that was sent has run.
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

// begins reports whether the line, as far as it has been read, begins with one of the texts.
func begins(line []byte, with [][]byte) bool {
	for _, w := range with {
		if bytes.HasPrefix(line, w) || bytes.HasPrefix(w, line) {
			return true
		}
	}
	return false
}
