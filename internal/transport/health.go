package transport

import (
	"math/rand/v2"
	"sync"
	"time"
)

// health is whether a server answers, and when it may be tried again.
type health struct {
	mu       sync.Mutex
	failures int // in a row
	cause    error
	retryAt  time.Duration // of background work
	triedAt  time.Duration // the last attempt since it failed
}

// The backoff of background work doubles between its limits. What cannot wait is let through at urgentGap.
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
	if now < h.retryAt { // one broken connection fails all who were using it
		return
	}
	wait := Backoff(h.failures)
	h.failures++
	h.retryAt = now + wait
}

// Backoff returns how long to wait after this many failures in a row: doubled each time, capped, with jitter.
func Backoff(failures int) time.Duration {
	wait := min(BackoffMin<<min(failures, 10), BackoffMax)
	return wait/2 + rand.N(wait/2+1)
}

func (h *health) failing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures > 0
}

// backoff returns why background work has to wait, and until when; nil if it need not.
func (h *health) backoff(now time.Duration) (until time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now < h.retryAt {
		return h.retryAt, h.cause
	}
	return 0, nil
}

// urgent returns why not even urgent work may be tried now, and until when; nil if it may, which it notes, so that of
// those who come together one tries.
func (h *health) urgent(now time.Duration) (until time.Duration, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause != nil && now < h.triedAt+urgentGap {
		return h.triedAt + urgentGap, h.cause
	}
	h.triedAt = now
	return 0, nil
}
