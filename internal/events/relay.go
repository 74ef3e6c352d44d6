// Package events carries what happens to a locker to the code of its user: loggers and trace functions. That code may
// block or take long, so it runs on a goroutine that nothing else depends on.
package events

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Capacity is how many events may wait before Offer takes no more. Final ones are taken beyond it.
const Capacity = 4096

// Relay runs functions in order on one goroutine, which it starts with the first one. Its zero value is ready.
type Relay struct {
	mu       sync.Mutex
	queue    []func()
	running  bool
	idle     chan struct{} // closed when the goroutine has nothing left; made by Close
	dropped  atomic.Uint64
	consumer atomic.Int64 // id of the goroutine that runs the functions, or ran the last ones
}

// Offer queues f unless too many wait already, which it counts and reports as false.
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

// Final queues f in any case. It is for the end of something whose beginning was taken by Offer: there are never more
// of these than leases.
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

// Dropped returns how many events were not taken.
func (r *Relay) Dropped() uint64 { return r.dropped.Load() }

// run ends when nothing is left; another goroutine is started when it is needed.
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

// next takes the first function of the queue. Where there is none it returns nil, and notes that nothing runs any more
// if the caller is about to end.
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

// Close returns when all that was queued has run. It waits for no longer than the limit, for code that does not return;
// called from such code, it runs the rest itself.
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

// drain runs what is queued on the goroutine of a function that the relay is running.
func (r *Relay) drain() {
	for f := r.next(false); f != nil; f = r.next(false) {
		f()
	}
}

// goroutineID reads the number from the head of the goroutine's stack trace, "goroutine 12 [". The runtime has no other
// way to tell whether Close was called by the code that Close would wait for.
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
