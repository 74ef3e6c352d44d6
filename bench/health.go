package main

import (
	"context"
	"time"
)

const (
	probeEvery = 250 * time.Millisecond
	// A server that does not answer for a TTL has ended every lease. A busy server may need longer for a single lock.
	probeLimit = 5 * ttl
)

// health checks whether the servers still grant locks. The workers cannot detect it at the end: for a waiter, an
// unreachable server looks like a lock that is held.
type health struct {
	client *client
	gone   func() // called after the end of the work, if the servers are gone
	last   error  // of the last probe; to be read after watch has returned
}

// watch probes until working has ended, and once more after it. If a probe fails, it returns at once.
func (h *health) watch(ctx, working context.Context) {
	for working.Err() == nil {
		within := ctx
		if h.last != nil {
			within = working
		}
		if err := h.client.probe(within, probeLimit); within.Err() == nil {
			h.last = err
		}
		pause(working, probeEvery)
	}
	if h.last == nil {
		h.last = h.client.probe(ctx, probeLimit)
	}
	if h.last != nil {
		h.gone()
	}
}
