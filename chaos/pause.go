package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"
)

// pauser is a process that stops this one and has it go on. A fault that the arena makes strikes at no moment in
// particular.
type pauser struct {
	orders io.Writer
	rest   time.Duration // between two long pauses

	mu   sync.Mutex
	next time.Time // when a long pause may come
}

// longPause is a pause that other processes may notice: little is promised about a process that stands still.
const longPause = stillness / 2

// newPauser starts a process that ends with this one.
func newPauser(forms []string) *pauser {
	const orders = `while read -r seconds; do kill -STOP "$0"; sleep "$seconds"; kill -CONT "$0"; done`
	cmd := exec.Command("sh", "-c", orders, fmt.Sprint(os.Getpid()))
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		panic(err)
	}
	p := &pauser{orders: pipe, rest: 40 * time.Second}
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
	_, err := fmt.Fprintf(p.orders, "%.3f\n", d.Seconds())
	return err == nil
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
