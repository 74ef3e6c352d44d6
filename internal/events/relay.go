// Package events delivers the events of a locker to user code: loggers and trace functions. User code may block or take
// long, so it runs on a goroutine on which nothing else depends.
package events

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Capacity is how many events may wait before Offer drops further ones. Final exceeds it.
const Capacity = 4096

// Relay runs functions in order on one goroutine, which it starts for the first one. Its zero value is ready.
type Relay struct {
	mu       sync.Mutex
	queue    []func()
	running  bool
	idle     chan struct{} // closed when the goroutine has nothing left; made by Close
	dropped  atomic.Uint64
	consumer atomic.Int64 // id of the goroutine that runs the functions, or ran the last ones
}

// Offer queues f and returns true. If Capacity functions wait already it drops f, counts it and returns false.
func (r *Relay) Offer(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= Capacity {
		r.dropped.Add(1)
		return false
	}
	r.push(f)
	return true
}

// Final queues f regardless of Capacity. It is for the end of an event that began with an accepted Offer, so there
// are never more of these than leases.
func (r *Relay) Final(f func()) {
	r.mu.Lock()
	r.push(f)
	r.mu.Unlock()
}

func (r *Relay) push(f func()) {
	r.queue = append(r.queue, f)
	if !r.running {
		r.running = true
		go r.run()
	}
}

func (r *Relay) Dropped() uint64 { return r.dropped.Load() }

// run ends when the queue is empty. push starts another goroutine when it is needed.
func (r *Relay) run() {
	r.consumer.Store(goroutineID())
	finished := false
	defer func() {
		if !finished { // the function has ended this goroutine by runtime.Goexit
			go r.run()
		}
	}()
	for f := r.next(true); f != nil; f = r.next(true) {
		f()
	}
	finished = true
}

// next removes and returns the first function of the queue. For an empty queue it returns nil. If last is true it also
// marks the relay as not running, because the caller is about to end.
func (r *Relay) next(last bool) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 {
		f := r.queue[0]
		r.queue[0] = nil
		r.queue = r.queue[1:]
		return f
	}
	if last {
		r.queue, r.running = nil, false
		if r.idle != nil {
			close(r.idle)
			r.idle = nil
		}
	}
	return nil
}

// Close returns when every queued function has run, or after limit if user code does not return. Called from a function
// that the relay runs, it runs the rest itself.
func (r *Relay) Close(limit time.Duration) {
	r.mu.Lock()
	if !r.running {
		r.mu.Unlock()
		return
	}
	if r.consumer.Load() == goroutineID() {
		r.mu.Unlock()
		r.drain()
		return
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	patience := time.NewTimer(limit)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
	}
}

// drain runs the queued functions on the goroutine of a function that the relay is running.
func (r *Relay) drain() {
	for f := r.next(false); f != nil; f = r.next(false) {
		f()
	}
}

// goroutineID reads the number from the head of the goroutine's stack trace, "goroutine 12 [". The runtime has no other
// way to detect that Close was called by the code for which Close would wait.
func goroutineID() int64 {
	var buffer [32]byte
	head := bytes.Fields(buffer[:runtime.Stack(buffer[:], false)])
	if len(head) < 2 {
		return -1
	}
	id, err := strconv.ParseInt(string(head[1]), 10, 64)
	if err != nil {
		return -1
	}
	return id
}
