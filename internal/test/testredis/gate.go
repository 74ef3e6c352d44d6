package testredis

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Direction is a direction of traffic.
type Direction int

// The directions of a link; Both is their union.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// gate passes or blocks the bytes and connections of a link.
type gate struct {
	mu        sync.Mutex
	changed   chan struct{} // closed and replaced whenever the gate opens or closes
	refused   bool
	frozen    bool      // the server reads nothing
	stalled   bool      // the server commits nothing: replies to scripts wait
	held      Direction // bytes wait
	blackhole Direction // bytes vanish
	delay     map[Direction]func() time.Duration
}

// set changes the state of the gate and wakes all waiters.
func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// Blackhole makes all bytes of that direction vanish while connections stay open. Dialling hangs. A connection that has
// lost bytes stays broken after Restore, because its stream has a hole. A connection that has lost none continues.
// Directions add up.
func (g *gate) Blackhole(dir Direction) { g.set(func() { g.blackhole |= dir }) }

// Hold makes all bytes of that direction wait until Restore and arrive then in order. Dialling hangs. Directions add
// up.
func (g *gate) Hold(dir Direction) { g.set(func() { g.held |= dir }) }

// Refuse makes new connections fail at once. Open connections stay open.
func (g *gate) Refuse() { g.set(func() { g.refused = true }) }

// Restore ends Blackhole, Hold and Refuse. Delays stay.
func (g *gate) Restore() {
	g.set(func() { g.blackhole, g.held, g.refused = 0, 0, false })
}

// Delay makes all bytes of both directions arrive d later; 0 ends it.
func (g *gate) Delay(d time.Duration) { g.DelayDir(Both, d) }

// DelayDir makes all bytes of that direction arrive d later; 0 ends it.
func (g *gate) DelayDir(dir Direction, d time.Duration) {
	g.DelayFunc(dir, func() time.Duration { return d })
}

// DelayFunc calls f for the delay of each message of that direction. The messages stay in order.
func (g *gate) DelayFunc(dir Direction, f func() time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range []Direction{ToServer, ToClient} {
		if dir&one != 0 {
			g.delay[one] = f
		}
	}
}

// enter waits until a connection may be opened.
func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		refused, hangs, changed := g.refused, g.held|g.blackhole != 0, g.changed
		g.mu.Unlock()
		switch {
		case refused:
			return errRefused()
		case !hangs:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("testredis: dial: %w", ctx.Err())
		}
	}
}

// refuses reports whether new connections fail at once.
func (g *gate) refuses() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// StallCommits makes the replies to scripts wait, and all that follows them on their connections, as those of a server
// whose durable log stands still. It executes commands all the same. Messages, and replies to other commands, pass.
func (g *gate) StallCommits() { g.set(func() { g.stalled = true }) }

// ResumeCommits ends StallCommits: the replies that wait arrive.
func (g *gate) ResumeCommits() { g.set(func() { g.stalled = false }) }

// pass waits until the direction is open, and for the log if the bytes are those of a write. It reports whether the
// bytes arrive. If not, they vanish.
func (g *gate) pass(dir Direction, write bool, gone <-chan struct{}) bool {
	for {
		g.mu.Lock()
		waits := g.held&dir != 0 || (g.frozen && dir == ToServer) || (g.stalled && write)
		arrives, changed := g.blackhole&dir == 0, g.changed
		g.mu.Unlock()
		if !waits {
			return arrives
		}
		select {
		case <-changed:
		case <-gone:
			return false
		}
	}
}

// latency returns the delay of the next message.
func (g *gate) latency(dir Direction) time.Duration {
	g.mu.Lock()
	f := g.delay[dir]
	g.mu.Unlock()
	if f == nil {
		return 0
	}
	return f()
}
