package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// pauser is a process that stops this one and has it go on. A fault that the arena makes strikes at no moment in
// particular.
type pauser struct {
	orders io.Writer
	done   int           // the pipe that has a byte for each order, written right before this process goes on
	turn   sync.Mutex    // of an order that is awaited
	rest   time.Duration // between two long pauses

	mu    sync.Mutex
	next  time.Time // when a long pause may come
	given int       // orders
	seen  int       // bytes, under turn
}

// longPause is a pause that other processes may notice: little is promised about a process that stands still.
const longPause = stillness / 2

// newPauser starts a process that ends with this one.
func newPauser(forms []string) *pauser {
	const orders = `while read -r seconds; do kill -STOP "$0"; sleep "$seconds"; printf .; kill -CONT "$0"; done`
	cmd := exec.Command("sh", "-c", orders, fmt.Sprint(os.Getpid()))
	pipe, err := cmd.StdinPipe()
	if err != nil {
		panic(err)
	}
	var ends [2]int
	if err = syscall.Pipe(ends[:]); err != nil {
		panic(err)
	}
	syscall.CloseOnExec(ends[0])
	syscall.CloseOnExec(ends[1])
	if err = syscall.SetNonblock(ends[0], true); err != nil {
		panic(err)
	}
	answers := os.NewFile(uintptr(ends[1]), "answers")
	cmd.Stdout = answers
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	_ = answers.Close()
	p := &pauser{orders: pipe, done: ends[0], rest: 40 * time.Second}
	if isNarrow(forms) {
		p.rest = 4 * time.Second
	}
	return p
}

// pause stops this process, a moment after the call returns. It reports false, and does not, after another long pause.
func (p *pauser) pause(d time.Duration) bool {
	if d > longPause && !p.mayRest() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given++
	_, err := fmt.Fprintf(p.orders, "%.3f\n", d.Seconds())
	return err == nil
}

// outlast stops this process until all its locks with this TTL are over, and returns at once after that. It reports
// whether the process stood still for so long without a break: the order may come late, and a fault may end the pause.
func (p *pauser) outlast(ttl time.Duration) bool {
	p.turn.Lock()
	defer p.turn.Unlock()
	began := time.Now()
	if !p.pause(3 * ttl / 2) {
		return false
	}
	p.mu.Lock()
	mine := p.given
	p.mu.Unlock()
	for last, still := began, time.Duration(0); last.Sub(began) < time.Minute; { // without a rest: a timer would be first
		done, before := p.executed() >= mine, still
		now := time.Now()
		still = now.Sub(last)
		if done {
			return max(before, still) > 5*ttl/4 // no renewal can have come in between
		}
		last = now
	}
	return false
}

// executed returns how many orders have been executed, under turn.
func (p *pauser) executed() int {
	var b [64]byte
	n, err := syscall.Read(p.done, b[:])
	for err == syscall.EINTR {
		n, err = syscall.Read(p.done, b[:])
	}
	p.seen += max(n, 0) // -1 with an error
	return p.seen
}

// mayRest reports whether no long pause was a while ago.
func (p *pauser) mayRest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.next) {
		return false
	}
	p.next = time.Now().Add(p.rest/2 + rand.N(p.rest))
	return true
}

// pauses draws how long a process is stopped: mostly for too short a time to be noticed.
func (c *client) pauses() time.Duration {
	if c.rng.IntN(40) == 0 {
		return c.millis(int(2 * c.w.cfg.TTL / time.Millisecond))
	}
	return time.Millisecond + c.millis(20)
}
