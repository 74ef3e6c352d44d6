package testredis

import (
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

//go:embed testdata/stub.lua54
var lua54Stub string

// Lua54 runs scripts in Lua 5.4, in a process of its own. The commands that the scripts call are run by a server.
//
// Redis and Valkey run scripts in Lua 5.1. There are servers that run them in Lua 5.4, where integers are a type of
// their own: a quotient is none, '%d' refuses a fraction, and a number that is no integer is written as 1.0.
type Lua54 struct{ lua, server respStream }

// StartLua54 starts the interpreter. It ends with the test. Without the interpreter the test is skipped; where CI=true
// it fails.
func StartLua54(t testing.TB, server *Server) *Lua54 {
	t.Helper()
	path, err := exec.LookPath("lua5.4")
	if err != nil {
		missing(t, "lua5.4 is not on PATH: install the Debian package of this name")
	}
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	process := exec.Command(path, "-e"+lua54Stub)
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		if err := process.Wait(); err != nil {
			t.Errorf("lua5.4: %v", err)
		}
	})
	return &Lua54{lua: respStream{w: in, r: out}, server: respStream{w: conn, r: conn}}
}

// Run runs a script and returns string, int64, nil or []any of these; an error reply is an error.
func (l *Lua54) Run(script string, keys, args []string) (any, error) {
	request := append([]string{script, strconv.Itoa(len(keys))}, keys...)
	answer, err := l.lua.exchange(encode(append(request, args...)))
	for {
		if err != nil {
			return nil, err
		}
		parts := elements(answer)
		if len(parts) != 2 {
			return nil, fmt.Errorf("testredis: lua5.4 answers %q", answer)
		}
		if parts[0] == "return" {
			return value(answer[len("*2\r\n$6\r\nreturn\r\n"):])
		}
		reply, err := l.server.exchange([]byte(parts[1]))
		if err != nil {
			return nil, err
		}
		if answer, err = l.lua.exchange(reply); err != nil {
			return nil, err
		}
	}
}

// respStream exchanges messages, one at a time.
type respStream struct {
	w io.Writer
	r io.Reader
}

func (s *respStream) exchange(request []byte) ([]byte, error) {
	if _, err := s.w.Write(request); err != nil {
		return nil, err
	}
	var f framer
	buf := make([]byte, 32<<10)
	for {
		n, err := s.r.Read(buf)
		if frames := f.feed(buf[:n]); len(frames) > 0 {
			return frames[0], nil
		}
		if err != nil {
			return nil, err
		}
	}
}
