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

// registers are the data that the locks protect: for each lock a register that takes every write, and registers with
// guards. They live in the arena, so that no fault strikes them.
type registers struct {
	mu       sync.Mutex
	seen     map[string]fencing.Registers
	all      map[registerKey]*register
	accesses []history.Access
}

type registerKey struct{ name, guard string }

type register struct {
	value  uint64
	reader string // the random value of the hold that has read last
}

// registerRequest reads the registers of a lock, or writes them if it has a value.
type registerRequest struct {
	Process int
	Name    string
	Write   bool // the mode of the lock
	Token   uint64
	Random  string // of the hold, or ""
	Value   uint64
}

// guards returns the guards to which the hold can show what they ask for.
func (r registerRequest) guards() []string {
	all := []string{""}
	if r.Token > 0 {
		all = append(all, history.Fenced)
	}
	if r.Random != "" {
		all = append(all, history.Compared)
	}
	return all
}

func newRegisters() *registers {
	return &registers{seen: map[string]fencing.Registers{}, all: map[registerKey]*register{}}
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
				open := map[string]history.Access{} // the accesses of the section under way
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

// do carries out a request on all registers, and returns whether those with a guard have accepted it. A section of a
// write lock reads first and writes later.
func (r *registers) do(request registerRequest, open map[string]history.Access) (accepted bool) {
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
	accepted = true
	for _, guard := range request.guards() {
		at, key := &register{}, registerKey{request.Name, guard}
		if r.all[key] != nil {
			at = r.all[key]
		}
		r.all[key] = at
		a := open[guard]
		if request.Value == 0 {
			a = history.Access{
				Name: request.Name, Guard: guard, Process: request.Process, Token: request.Token, Called: now(), Read: at.value,
			}
			at.reader = request.Random
		}
		a.Refused = a.Refused || guard == history.Fenced && err != nil ||
			guard == history.Compared && at.reader != request.Random
		a.Ended = now()
		if request.Value != 0 && !a.Refused {
			a.Wrote, at.value = request.Value, request.Value
		}
		accepted = accepted && !a.Refused
		if open[guard] = a; request.Value != 0 || !request.Write {
			r.accesses = append(r.accesses, a)
		}
	}
	return accepted
}

// taken returns the accesses so far.
func (r *registers) taken() []history.Access {
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
func (s *section) read(span *history.Span) { s.do(span, "", 0) }

func (s *section) write(span *history.Span, value uint64) { s.do(span, "", value) }

// do reads the registers, or writes them if there is a value.
func (s *section) do(span *history.Span, random string, value uint64) {
	var accepted bool
	request := registerRequest{
		Process: span.Process, Name: span.Name, Write: span.Write, Token: span.Token, Random: random, Value: value,
	}
	if err := errors.Join(s.request.Encode(request), s.reply.Decode(&accepted)); err != nil {
		panic(err) // the arena has gone
	}
}
