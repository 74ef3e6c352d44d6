package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// result is the outcome of a run, as -json writes it. Durations are microseconds.
type result struct {
	Servers     []string  `json:"servers"`
	Embedded    bool      `json:"embedded"`
	Clients     int       `json:"clients"`
	Workers     int       `json:"workers"`
	Names       int       `json:"names"`
	Seconds     float64   `json:"seconds"`
	Interrupted bool      `json:"interrupted"`
	ServersGone string    `json:"servers_gone,omitempty"` // the reason, if they did not last to the end
	Write       modeCount `json:"write"`
	Read        modeCount `json:"read"`
	Nested      modeCount `json:"nested"`

	HandedOff    uint64   `json:"handed_off"`
	LeasesLost   uint64   `json:"leases_lost"`
	Stalls       uint64   `json:"stalls"` // leases lost on purpose; the end of the run may cut off the late write
	LateWrites   uint64   `json:"late_writes"`
	StaleRefused uint64   `json:"stale_writes_refused"`
	LostUnfenced uint64   `json:"updates_lost_without_a_guard"`
	Failures     uint64   `json:"failures"`
	Failure      string   `json:"failure,omitempty"`
	Exclusion    uint64   `json:"violations_of_exclusion"`
	TokenOrder   uint64   `json:"violations_of_token_order"`
	Storage      uint64   `json:"violations_in_storage"`
	Violations   []string `json:"violations"`
}

// modeCount is the outcome of one kind of acquisition.
type modeCount struct {
	Acquired  uint64  `json:"acquired"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"wait_p50_us"`
	P99       float64 `json:"wait_p99_us"`
	Max       float64 `json:"wait_max_us"`
}

func countMode(h *histogram, seconds float64) modeCount {
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return modeCount{
		Acquired: h.total, PerSecond: float64(h.total) / seconds,
		P50: micros(h.percentile(50)), P99: micros(h.percentile(99)), Max: micros(h.max),
	}
}

// take copies the counters, after all workers have ended.
func (r *result) take(w *waits, stats rwlock.Stats, s *stage) {
	r.Write, r.Read = countMode(&w.write, r.Seconds), countMode(&w.read, r.Seconds)
	r.Nested = countMode(&w.nested, r.Seconds)
	r.HandedOff, r.LeasesLost = stats.HandedOff, stats.Lost.Total()+stats.Expired
	for _, lost := range s.store.lostUpdates() {
		s.score.violated(storage, "update lost: "+lost)
	}
	r.LostUnfenced = s.store.lostWithoutGuard()
	score := s.score
	score.mu.Lock()
	defer score.mu.Unlock()
	r.Stalls = score.stalls
	r.LateWrites, r.StaleRefused, r.Failures = score.lateWrites, score.refused, score.failures
	if score.failure != nil {
		r.Failure = score.failure.Error()
	}
	r.Exclusion, r.TokenOrder = score.violations[exclusion], score.violations[tokenOrder]
	r.Storage = score.violations[storage]
	r.Violations = append([]string{}, score.details...)
}

func (r *result) violations() uint64 { return r.Exclusion + r.TokenOrder + r.Storage }

// verdict is nil if the run has proved the rules that it checks.
func (r *result) verdict() error {
	switch {
	case r.violations() > 0:
		return fmt.Errorf("%d violations", r.violations())
	case r.Interrupted:
		return nil
	case r.ServersGone != "":
		return fmt.Errorf("the servers did not last to the end: %s", r.ServersGone)
	case r.Write.Acquired+r.Read.Acquired == 0:
		return errors.New("the run shows nothing: no lock was acquired")
	case r.LateWrites == 0:
		return errors.New("the run shows nothing: no stalled holder came to its late write")
	}
	return nil
}
