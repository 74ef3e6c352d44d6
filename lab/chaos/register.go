package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// registers are the data that the locks protect: for each lock one register that refuses stale tokens, and one that
// takes every write, for comparison. They live in the arena, so that no fault strikes them.
type registers struct {
	mu       sync.Mutex
	seen     map[string]fencing.Registers
	values   map[registerKey]uint64
	accesses []history.Access
}

type registerKey struct {
	name    string
	guarded bool
}

// registerRequest reads both registers of a lock, or writes them if it has a value.
type registerRequest struct {
	Process int
	Name    string
	Write   bool // the mode of the lock
	Token   uint64
	Value   uint64
}

func newRegisters() *registers {
	return &registers{seen: map[string]fencing.Registers{}, values: map[registerKey]uint64{}}
}

// serveRegisters answers workers until the listener is closed.
func serveRegisters(listener net.Listener) *registers {
	r := newRegisters()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				requests, replies := json.NewDecoder(conn), json.NewEncoder(conn)
				open := map[bool]history.Access{} // the accesses of the section under way
				for {
					var request registerRequest
					if requests.Decode(&request) != nil || replies.Encode(r.do(request, open)) != nil {
						return
					}
				}
			}()
		}
	}()
	return r
}

// do carries out a request on both registers, and returns whether the guarded one has accepted it. A section of a write
// lock reads first and writes later.
func (r *registers) do(request registerRequest, open map[bool]history.Access) (accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fence := fencing.Fence{Resource: request.Name, Token: fencing.Token(request.Token), Mode: fencing.Read}
	if request.Write {
		fence.Mode = fencing.Write
	}
	err := r.seen[request.Name].Check(fence)
	if err == nil {
		r.seen[request.Name] = r.seen[request.Name].Raise(fence)
	}
	for _, guarded := range []bool{true, false} {
		at := registerKey{request.Name, guarded}
		a := open[guarded]
		if request.Value == 0 {
			a = history.Access{
				Name: request.Name, Guarded: guarded, Process: request.Process, Token: request.Token, Called: now(),
				Read: r.values[at],
			}
		}
		a.Refused = a.Refused || guarded && err != nil
		a.Ended = now()
		if request.Value != 0 && !a.Refused {
			a.Wrote = request.Value
			r.values[at] = request.Value
		}
		if open[guarded] = a; request.Value != 0 || !request.Write {
			r.accesses = append(r.accesses, a)
		}
	}
	return err == nil
}

// all returns the accesses so far.
func (r *registers) all() []history.Access {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accesses
}

// section is a client's connection to the registers.
type section struct {
	conn    net.Conn
	request *json.Encoder
	reply   *json.Decoder
}

func openRegisters(socket string) (*section, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("the registers: %w", err)
	}
	return &section{conn, json.NewEncoder(conn), json.NewDecoder(conn)}, nil
}

// read begins a section of the lock, and write ends it. Neither looks whether the lock is still held.
func (s *section) read(span *history.Span) {
	s.do(registerRequest{Process: span.Process, Name: span.Name, Write: span.Write, Token: span.Token})
}

func (s *section) write(span *history.Span, value uint64) {
	s.do(registerRequest{
		Process: span.Process, Name: span.Name, Write: span.Write, Token: span.Token, Value: value,
	})
}

func (s *section) do(request registerRequest) {
	var accepted bool
	if err := errors.Join(s.request.Encode(request), s.reply.Decode(&accepted)); err != nil {
		panic(err) // the arena has gone
	}
}
