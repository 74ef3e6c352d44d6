package main

import (
	"math/bits"
	"time"
)

// A value's bucket is its highest subBits+1 bits and their place. A bucket is at most 1/32 of the value wide, for
// values of any size, so a percentile is at most that much too large.
const (
	subBits = 5
	buckets = (64 - subBits) << subBits
)

// histogram counts any number of durations in little memory. Its zero value is empty.
type histogram struct {
	counts [buckets]uint64
	total  uint64
	max    time.Duration
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(0, bits.Len64(v)-subBits-1)
	return shift<<subBits + int(v>>shift)
}

// ceiling is the greatest duration in a bucket.
func ceiling(bucket int) time.Duration {
	shift := max(0, bucket>>subBits-1)
	top := uint64(bucket - shift<<subBits)
	return time.Duration((top+1)<<shift - 1)
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(d)]++
	h.total++
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// percentile returns the duration that p percent of the durations do not exceed; 0 if there are none.
func (h *histogram) percentile(p float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := uint64(p / 100 * float64(h.total))
	if float64(rank) < p/100*float64(h.total) {
		rank++
	}
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen >= max(rank, 1) {
			return min(ceiling(i), h.max)
		}
	}
	return h.max
}
