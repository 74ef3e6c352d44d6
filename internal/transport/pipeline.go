package transport

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Call is one script call without a waiting goroutine: a refresh, a raise, a release that nobody waits for.
type Call struct {
	Script *Script
	Keys   []string
	Vote   wire.Vote
	Args   []string // after the vote
	To     Receiver
	Urgent bool // a user waits for it: also tried during a backoff

	AnyServer bool // its answer counts over any connection: whichever server has run it, no other state follows

	Replicated bool // the answer is *Unreplicated if it ran and too few replicas confirmed it

	Hold      string     // that the call asks for; "" if it asks for none, or has left before
	AllOrNone *AllOrNone // of which the call is an acquire; nil for none

	members []*Call       // of a group
	split   func() []Call // the same as calls that name one lock each; nil for a call with one lock
	until   time.Duration // a call that was sent again is not sent once more after that; 0 for none
}

// Receiver gets the answer to a call, and the time just before the call was sent. It must not block. With an interface
// a caller of several masters needs no closure for each of them.
type Receiver interface {
	Receive(r rueidis.RedisResult, sent clock.Instant)
}

type ReceiverFunc func(r rueidis.RedisResult, sent clock.Instant)

func (f ReceiverFunc) Receive(r rueidis.RedisResult, sent clock.Instant) { f(r, sent) }

// Repeater is the Receiver of a call that answers the same when it has run before. If the connection to one of several
// masters was replaced during the call, the call is sent again once the marker has been read, unless Repeats says that
// nobody waits for it any more.
type Repeater interface {
	Receiver
	Repeats() bool
}

// RepeaterFunc is a function as a Repeater of a call that is always sent again.
type RepeaterFunc func(r rueidis.RedisResult, sent clock.Instant)

func (f RepeaterFunc) Receive(r rueidis.RedisResult, sent clock.Instant) { f(r, sent) }

func (RepeaterFunc) Repeats() bool { return true }

// pipeline sends the calls of one node. The calls that arrive while its batches are in flight form the next batch. Each
// node has its own pipeline, so a slow node does not delay the renewals on other nodes. Calls of one hold need no
// order: a release leaves a tombstone for every unanswered request.
type pipeline struct {
	n          *Node
	replicates bool // the answers count only with replicas

	waiters sync.Pool // of callers: *waiter

	most int           // how many batches may be in flight, each sent by a sender of its own
	wake chan struct{} // one signal for each idle sender that was called

	mu       sync.Mutex // guards what follows
	first    callQueue  // before all others: releases, and what no vote is for
	calls    callQueue
	gathered callQueue // of callers, for a batch of its own
	spare    []*sender // of such batches
	renewals []*Renewal
	renewing bool            // a batch with renewals is in flight: new renewals wait
	ended    bool            // the node has no slots any more
	sending  context.Context // of the senders; nil while none may be started
	started  int             // senders
	idle     int             // senders that were not called since they found nothing to send
	called   bool            // a sender that was called has not looked for a batch so far
	senders  sync.WaitGroup
}

// A batch is bounded, so that an early expiry does not wait behind all other renewals. Several batches may be in
// flight, so that a call does not wait for the answers to earlier ones. They are few, so that calls are batched.
const (
	batchesAtOnce    = 4
	sparesKept       = 16 // of callers, whose batches are small and many
	callsPerBatch    = 256
	callsKept        = batchesAtOnce * callsPerBatch // for a server that does not answer
	renewalsPerBatch = 8 * renewalsPerCall
)

// post returns false if the pipeline has ended.
func (p *pipeline) post(calls ...Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	for _, c := range calls {
		if c.Script.first {
			p.first = append(p.first, c)
		} else {
			p.calls = append(p.calls, c)
		}
	}
	p.callSender()
	return true
}

// waiter is what the call of a caller needs until it is answered. It serves call after call: nothing looks at it once
// the call is answered.
type waiter struct {
	reply      answers
	keys, args []string
	limit      *time.Timer
}

// errLimit is the answer to a call at its limit.
var errLimit = errors.New("the limit is over")

func newWaiter() *waiter {
	w := &waiter{reply: make(answers, 2)} // room for both answers
	over := func() { w.reply.Receive(rueidis.NewErrorResult(errLimit), clock.Instant{}) }
	w.limit = time.AfterFunc(clock.Never, over)
	w.limit.Stop()
	return w
}

// gather sends a call in a batch with those that other callers gather meanwhile. It returns when the limit is over, or
// without a limit when ctx ends. The end of the engine ends the batch.
func (p *pipeline) gather(
	ctx context.Context, limit time.Duration, began clock.Instant,
	s *Script, keys []string, vote wire.Vote, args []string,
) (rueidis.RedisResult, clock.Instant) {
	w, again := p.waiters.Get().(*waiter)
	if !again {
		w = newWaiter()
	}
	w.keys, w.args = append(w.keys[:0], keys...), append(w.args[:0], args...)
	done := ctx.Done()
	if limit > 0 {
		w.limit.Reset(limit)
		done = nil
	}
	first, batch := p.add(Call{Script: s, Keys: w.keys, Vote: vote, Args: w.args, To: w.reply})
	if first {
		runtime.Gosched()
		batch = p.takeGathered()
	}
	if batch != nil {
		batch.sendGathered()
	}
	cause := context.DeadlineExceeded
	select {
	case a := <-w.reply:
		if a.r.NonRedisError() == errLimit {
			break
		}
		if limit == 0 || w.limit.Stop() {
			p.waiters.Put(w) // each call is answered once
		}
		return a.r, a.sent
	case <-done:
		cause = ctx.Err()
	}
	return rueidis.NewErrorResult(p.n.gaveUp(cause, keys[0], w.reply)), began
}

// add adds a call to those that callers gather. It reports whether it is the first of them. If they are a batch now, it
// takes them: what other callers add meanwhile is the next one.
func (p *pipeline) add(c Call) (first bool, batch *sender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gathered = append(p.gathered, c); len(p.gathered) == callsPerBatch {
		batch = p.senderOfGathered()
	}
	return len(p.gathered) == 1, batch
}

// takeGathered returns a sender with what callers have gathered, or nil if it has left as a batch.
func (p *pipeline) takeGathered() *sender {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.gathered) == 0 {
		return nil
	}
	return p.senderOfGathered()
}

// senderOfGathered moves the gathered calls to a sender, under mu.
func (p *pipeline) senderOfGathered() (s *sender) {
	if last := len(p.spare) - 1; last >= 0 {
		s, p.spare = p.spare[last], p.spare[:last]
	} else {
		s = &sender{p: p, sending: p.n.m.cfg.Life}
	}
	s.batch, p.gathered = p.gathered, s.batch
	return s
}

// sendGathered sends on a goroutine of its own, so that the caller can give up.
func (s *sender) sendGathered() {
	send := func() {
		s.send(s.batch)
		s.p.keep(s)
	}
	if !s.p.n.m.cfg.Spawn(send) { // the engine is ending
		send()
	}
}

// keep keeps a sender for further batches of callers, without its calls. Senders beyond those that are in flight
// otherwise are dropped, as after a burst.
func (p *pipeline) keep(s *sender) {
	clear(s.batch)
	s.batch, s.reply[0] = s.batch[:0], rueidis.RedisResult{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spare) < sparesKept {
		p.spare = append(p.spare, s)
	} else {
		s.stop()
	}
}

// withdraw removes a call that has not left, and reports whether there was one.
func (p *pipeline) withdraw(is func(*Call) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range []*callQueue{&p.calls, &p.first, &p.gathered} {
		for i := range *q {
			if is(&(*q)[i]) {
				*q = slices.Delete(*q, i, i+1)
				return true
			}
		}
	}
	return false
}

// renew returns false if the pipeline has ended.
func (p *pipeline) renew(r *Renewal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.renewals = append(p.renewals, r)
	p.callSender()
	return true
}

// sendAgain puts these calls before all others, in their order.
func (p *pipeline) sendAgain(calls []Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range calls {
		calls[i].Hold = ""
	}
	p.calls = append(calls, p.calls...)
	if p.mayTake() {
		p.callSender()
	}
}

// callSender has a sender look for a batch, under mu: an idle one, or else a new one. If all are waiting for answers,
// the first that has them looks by itself.
func (p *pipeline) callSender() {
	switch {
	case p.called || p.sending == nil:
	case p.idle > 0:
		p.idle--
		p.called = true
		p.wake <- struct{}{} // does not block: each signal has taken one from idle
	case p.started < p.most:
		p.started++
		p.called = true
		s := &sender{p: p, sending: p.sending}
		p.senders.Go(s.run)
	}
}

// drainTimeout is how long the requests in flight to a node without slots may still take.
const drainTimeout = 100 * time.Millisecond

// run lets senders send until the node ends. Unsent calls are then posted again, unless the engine ends too, because
// other nodes have the slots now. Requests in flight may still be answered.
func (p *pipeline) run() {
	sending, cancel := context.WithCancel(p.n.m.cfg.Life)
	defer cancel()
	p.mu.Lock()
	p.sending = sending
	p.callSender() // for what was posted before
	p.mu.Unlock()

	<-p.n.life.Done()
	p.mu.Lock()
	p.sending = nil
	p.mu.Unlock()
	if p.n.m.cfg.Life.Err() == nil { // sending, its child, ends a moment later
		p.handOn()
		time.AfterFunc(drainTimeout, cancel)
	}
	p.senders.Wait()
}

func (p *pipeline) handOn() {
	p.mu.Lock()
	p.ended = true
	calls, renewals := append(p.first, p.calls...), p.renewals
	p.first, p.calls, p.renewals = nil, nil, nil
	p.mu.Unlock()
	for _, c := range calls {
		p.n.m.Post(c)
	}
	for _, r := range renewals {
		p.n.m.Renew(r)
	}
}

// take moves the next batch into an array of the caller. If nothing is left, or nothing that may be tried now, the
// caller is idle from then on, and later is after how long to look again. During a backoff, calls that are not urgent
// fail at once, and so do urgent ones beyond callsKept. All other calls wait for the next attempt.
func (p *pipeline) take(into []Call) (batch []Call, renews bool, later time.Duration) {
	now := p.n.m.cfg.Clock.Now()
	_, cause := p.n.Backoff(now.Mono)
	p.mu.Lock()
	p.called = false
	if refused := p.takeRefused(cause); len(refused) > 0 {
		p.mu.Unlock()
		for _, c := range refused {
			c.To.Receive(rueidis.NewErrorResult(p.n.m.notSent(cause)), now)
		}
		return p.take(into)
	}
	var due, obsolete []*Renewal
	later = clock.Never
	unread := false
	if p.mayTake() {
		var wait time.Duration
		if p.n.m.cfg.Quarantine > 0 {
			wait = p.n.m.untilRead(now.Mono)
		}
		unread = wait > 0 && !p.n.Failing()
		if unread && len(p.first) == 0 {
			later = wait
		} else if at, refused := p.n.urgent(now.Mono); refused != nil {
			later = at - now.Mono
		} else {
			if !p.renewing && !unread {
				due, obsolete = takeRenewals(&p.renewals, now, renewalsPerBatch)
				p.renewing = len(due) > 0
			}
			batch = p.first.take(append(into, p.renewalCalls(due)...), callsPerBatch)
			if !unread {
				batch = p.calls.take(batch, callsPerBatch-len(batch))
			}
		}
	}
	if len(batch) == 0 {
		p.idle++ // under the same mutex as the look, so that a later call finds the sender idle
	} else if p.mayTake() {
		p.callSender()
	}
	p.mu.Unlock()
	if unread {
		p.n.m.cfg.OnUnread()
	}
	for _, r := range obsolete {
		r.Done(false, &NoReply{After: 0}, now)
	}
	return batch, len(due) > 0, later
}

// takeRefused takes out, under mu, the calls that fail during a backoff for this cause; none without a cause. Of the
// urgent ones these are the last: over a quorum the callers go on without this server, and more of them come than it
// fails to answer.
func (p *pipeline) takeRefused(cause error) (refused []Call) {
	if cause == nil {
		return nil
	}
	for _, q := range []*callQueue{&p.first, &p.calls} {
		kept := (*q)[:0]
		for _, c := range *q {
			if c.Urgent && len(kept) < callsKept {
				kept = append(kept, c)
			} else {
				refused = append(refused, c)
			}
		}
		clear((*q)[len(kept):])
		*q = kept
	}
	return refused
}

// mayTake reports whether there is something to send, under mu.
func (p *pipeline) mayTake() bool {
	return len(p.first)+len(p.calls) > 0 || len(p.renewals) > 0 && !p.renewing
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

// callQueue has calls of a pipeline in their order, under its mutex.
type callQueue []Call

// take appends at most so many of the first calls to a batch.
func (q *callQueue) take(batch []Call, most int) []Call {
	n := min(len(*q), max(most, 0))
	batch = append(batch, (*q)[:n]...)
	kept := copy(*q, (*q)[n:])
	clear((*q)[kept:])
	if *q = (*q)[:kept]; kept == 0 && cap(*q) > callsPerBatch { // the array of a burst
		*q = nil
	}
	return batch
}
