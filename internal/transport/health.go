package transport

import (
	"math/rand/v2"
	"sync"
	"time"
)

// health records whether a server answers, and when it may be tried again.
type health struct {
	mu       sync.Mutex
	failures int // consecutive
	cause    error
	retryAt  time.Duration // when background work may try again
	triedAt  time.Duration // the last attempt since it failed
}

// The backoff of background work doubles between its limits. Urgent work is let through every urgentGap.
const (
	BackoffMin = 10 * time.Millisecond
	BackoffMax = time.Second
	urgentGap  = 20 * time.Millisecond
)

func (h *health) succeeded() {
	h.mu.Lock()
	h.failures, h.retryAt, h.cause = 0, 0, nil
	h.mu.Unlock()
}

func (h *health) failed(now time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause, h.triedAt = cause, now
	if now < h.retryAt { // one broken connection fails all requests on it
		return
	}
	wait := Backoff(h.failures)
	h.failures++
	h.retryAt = now + wait
}

// Backoff returns how long to wait after this many consecutive failures: doubled each time, capped, with jitter.
func Backoff(failures int) time.Duration {
	wait := min(BackoffMin<<min(failures, 10), BackoffMax)
	return wait/2 + rand.N(wait/2+1)
}

func (h *health) failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures > 0
}

// backoff returns why background work has to wait, and until when. The cause is nil if it need not wait.
func (h *health) backoff(now time.Duration) (until time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now < h.retryAt {
		return h.retryAt, h.cause
	}
	return 0, nil
}

// urgent reports whether an urgent call may go out now and records the attempt, so that one of several concurrent
// callers probes the server. If it may not, urgent returns the cause of the failure and until when to wait.
func (h *health) urgent(now time.Duration) (until time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil && now < h.triedAt+urgentGap {
		return h.triedAt + urgentGap, h.cause
	}
	h.triedAt = now
	return 0, nil
}
