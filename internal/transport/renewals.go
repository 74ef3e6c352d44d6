package transport

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// Renewal is one hold to renew on one master.
type Renewal struct {
	Lock, Holds string // the keys of renew.lua
	Hold, TTL   string
	Token       uint64
	Deadline    clock.Instant // from then on the renewal is useless
	Done        func(renewed bool, err error, sent clock.Instant)
	Wanted      func() // called before Done if another hold waits for the lock; may be nil
}

// takeRenewals removes at most n due renewals from waiting, the earliest deadline first. Renewals whose deadline has
// passed are returned separately. The slice is sorted here and not on insertion: usually all renewals go in one batch,
// and they arrive nearly in order, because holds that were renewed together are due together.
func takeRenewals(waiting *[]*Renewal, now clock.Instant, n int) (due, obsolete []*Renewal) {
	slices.SortFunc(*waiting, func(a, b *Renewal) int { return cmp.Compare(a.Deadline.Mono, b.Deadline.Mono) })
	taken := 0
	for _, r := range *waiting {
		if len(due) == n {
			break
		}
		if taken++; r.Deadline.Passed(now) {
			obsolete = append(obsolete, r)
		} else {
			due = append(due, r)
		}
	}
	if *waiting = (*waiting)[taken:]; len(*waiting) == 0 {
		*waiting = nil
	}
	return due, obsolete
}

// renewalsPerCall bounds one script call to 100 to 200 us of the server's time.
const renewalsPerCall = 128

// renewalCalls makes script calls of several renewals each. If a server refuses keys of several slots, as in a Cluster,
// each renewal is a separate call, because every lock has its own slot.
func (p *pipeline) renewalCalls(due []*Renewal) (calls []Call) {
	most := renewalsPerCall
	if p.n.separated.Load() {
		most = 1
	}
	for together := range slices.Chunk(due, most) {
		calls = append(calls, p.renewalCall(together))
	}
	return calls
}

// renewalCall makes one script call of several renewals, with the marker if there are several masters.
func (p *pipeline) renewalCall(due []*Renewal) Call {
	keys := make([]string, 0, 2*len(due)+1)
	args := make([]string, 0, 3*len(due)+1)
	args = append(args, p.n.m.Vote(0))
	tokens := tokenArgs(due)
	for i, r := range due {
		keys = append(keys, r.Lock, r.Holds)
		args = append(args, r.Hold, r.TTL, tokens[i])
	}
	if marker := p.n.m.cfg.MarkerKey; p.n.m.cfg.Quarantine > 0 {
		keys = append(keys, marker)
	}
	done := func(r rueidis.RedisResult, sent clock.Instant) { p.answered(due, r, sent) }
	call := Call{Script: p.n.m.cfg.Renew(p.n.m), Keys: keys, Args: args, Done: done}
	if len(due) > 1 {
		call.split = func() []Call { return p.renewalCalls(due) }
	}
	return call
}

// tokenArgs formats the tokens as arguments that share one string's memory.
func tokenArgs(due []*Renewal) []string {
	const digits = 16 // of the largest token
	text, ends := make([]byte, 0, digits*len(due)), make([]int, len(due))
	for i, r := range due {
		text = strconv.AppendUint(text, r.Token, 10)
		ends[i] = len(text)
	}
	all, from, args := string(text), 0, make([]string, len(due))
	for i, end := range ends {
		args[i], from = all[from:end], end
	}
	return args
}

// The answers of renew.lua for a hold: renewed and no hold waits for its lock; renewed and a hold waits; nothing was
// done, because the client has not read the master's current marker.
const (
	renewed       = 1
	renewedWanted = 2
	renewalUnread = 3
)

// answered passes each renewal its part of the reply. The reply is the server's time, then the answer for each.
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
		if answer == renewalUnread {
			renewal.Done(false, errUnread, sent)
			continue
		}
		if answer == renewedWanted && renewal.Wanted != nil {
			renewal.Wanted()
		}
		renewal.Done(answer == renewed || answer == renewedWanted, nil, sent)
	}
}
