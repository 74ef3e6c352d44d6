package transport

import (
	"container/heap"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// Renewal is one hold that is to be renewed on one master.
type Renewal struct {
	Lock, Holds      string // the keys of renew.lua
	Hold, TTL, Token string
	Deadline         clock.Instant // from then on the renewal is of no use
	Done             func(renewed bool, err error, sent clock.Instant)
	Wanted           func() // called before Done where somebody waits for the lock; may be nil
}

// renewalHeap holds renewals by deadline: what expires first is sent first.
type renewalHeap []*Renewal

func (h renewalHeap) Len() int           { return len(h) }
func (h renewalHeap) Less(i, j int) bool { return h[i].Deadline.Mono < h[j].Deadline.Mono }
func (h renewalHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *renewalHeap) Push(x any)        { *h = append(*h, x.(*Renewal)) }

func (h *renewalHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}

// take removes at most n renewals; those whose deadline has passed come back apart.
func (h *renewalHeap) take(now clock.Instant, n int) (due, obsolete []*Renewal) {
	for len(*h) > 0 && len(due) < n {
		r := heap.Pop(h).(*Renewal)
		if r.Deadline.Passed(now) {
			obsolete = append(obsolete, r)
		} else {
			due = append(due, r)
		}
	}
	return due, obsolete
}

// renewalsPerCall bounds one script call: 100 to 200 us of the server's time.
const renewalsPerCall = 128

// renewalCall makes one script call of several renewals. In a Cluster every lock has a slot of its own, and a call
// reaches one slot only.
func (p *pipeline) renewalCalls(due []*Renewal) []Call {
	most := renewalsPerCall
	if p.n.m.client.Mode() == rueidis.ClientModeCluster {
		most = 1
	}
	var calls []Call
	for len(due) > 0 {
		n := min(most, len(due))
		calls = append(calls, p.renewalCall(due[:n]))
		due = due[n:]
	}
	return calls
}

func (p *pipeline) renewalCall(due []*Renewal) Call {
	keys := make([]string, 0, 2*len(due)+1)
	args := make([]string, 0, 3*len(due)+1)
	args = append(args, p.n.m.Vote(0))
	for _, r := range due {
		keys = append(keys, r.Lock, r.Holds)
		args = append(args, r.Hold, r.TTL, r.Token)
	}
	if marker := p.n.m.cfg.MarkerKey; p.n.m.cfg.Quarantine > 0 {
		keys = append(keys, marker)
	}
	return Call{Script: p.n.m.cfg.Renew(), Keys: keys, Args: args, Done: func(r rueidis.RedisResult, sent clock.Instant) {
		p.answered(due, r, sent)
	}}
}

// The answers of renew.lua for a hold that was renewed: nobody waits for its lock, or somebody does.
const (
	renewed       = 1
	renewedWanted = 2
)

// answered hands each renewal its part of the reply: the server's time, then the answer for each.
func (p *pipeline) answered(due []*Renewal, r rueidis.RedisResult, sent clock.Instant) {
	reply, err := r.AsIntSlice()
	if err == nil && len(reply) != len(due)+1 {
		err = fmt.Errorf("malformed reply of %d fields", len(reply))
	}
	if err != nil {
		for _, renewal := range due {
			renewal.Done(false, err, sent)
		}
		return
	}
	p.n.clock.sample(sent, reply[0])
	for i, renewal := range due {
		answer := reply[1+i]
		if answer == renewedWanted && renewal.Wanted != nil {
			renewal.Wanted()
		}
		renewal.Done(answer == renewed || answer == renewedWanted, nil, sent)
	}
}
