package engine

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Acquire asks for a hold and, if the request's entry is Wait, waits until it is granted or ctx ends. On success l is
// a live lease; on failure the error is a *Failure, and whatever the masters may have granted is released in the
// background.
func (e *Engine) Acquire(ctx context.Context, l *Lease, r Request) error {
	l.begin(e, r)
	if ctx.Err() != nil {
		return l.fail(Contended, endOf(ctx))
	}
	if err := e.inOrder(ctx); err != nil {
		return l.fail(Unusable, err)
	}
	if !e.register(l) {
		return l.fail(Closed, ErrClosed)
	}
	e.fanOut(func(m *master) { l.ask(ctx, m) })
	if err := l.await(ctx); err != nil {
		return err
	}
	e.counters.acquired.Add(1)
	if hook := e.cfg.Hooks.Acquired; hook != nil {
		hook(l)
	}
	return nil
}

func (l *Lease) begin(e *Engine, r Request) {
	l.e, l.name, l.mode, l.owner, l.terms, l.entry = e, r.Name, r.Mode, r.Owner, r.Terms, r.Entry
	l.keys = e.keysOf(r.Name)
	l.begun, l.capped = e.clock.now(), never
	l.floor = e.proposal(l.begun)
	if l.slots = l.one[:]; len(e.masters) > 1 {
		l.slots = make([]slot, len(e.masters))
	}
	l.hold = newULIDAt(l.begun.wall)
	if l.owner == "" {
		l.owner = l.hold
	}
}

// ask sends the acquire to one master and takes in its answer. A master that rests is not asked; its room will.
func (l *Lease) ask(ctx context.Context, m *master) {
	now := l.e.clock.now()
	if _, cause := m.resting(now.mono); cause != nil {
		l.receive(m, l.Hold(), answer{err: cause}, now)
		return
	}
	var array [10]string
	hold, args := l.sending(m, l.floor, &array)
	if hold == "" {
		return
	}
	if len(l.e.masters) > 1 { // the verdict does not wait for this one, so neither does its request for the verdict
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(l.e.life, l.e.cfg.NodeTimeout)
		defer cancel()
	}
	r := m.exec(ctx, l.program(), l.e.sent(&l.keys), args)
	switch {
	case ctx.Err() == nil:
		m.heard(l.e.clock.now().mono, r.NonRedisError())
	case r.NonRedisError() == nil:
	case len(l.e.masters) == 1:
		return // await sees the same end, and this master as one that has not answered
	default:
		silence := &NoReply{After: l.e.clock.now().mono - now.mono}
		r = rueidis.NewErrorResult(silence)
		m.heard(l.e.clock.now().mono, silence)
	}
	l.receive(m, hold, readAnswer(r), now)
}

// sending notes that a request is about to leave, and returns the hold that it is for: none if the lease has ended,
// since whatever is sent after its releases would stay behind.
func (l *Lease) sending(m *master, floor string, into *[10]string) (hold string, args []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == ended {
		return "", nil
	}
	if s := &l.slots[m.index]; s.standing == unasked || s.standing == failed {
		s.standing = asked
	}
	if m.index == 0 {
		l.asks++
	}
	return l.hold, l.acquireArgs(floor, into)
}

// receive takes in an answer to acquire or join. Answers for a hold that the lease has given up are not counted.
func (l *Lease) receive(m *master, hold string, a answer, sent instant) {
	m.sample(sent, a.elapsed)
	l.mu.Lock()
	defer l.unlock()
	if hold != l.hold {
		return
	}
	s := &l.slots[m.index]
	switch {
	case a.err == nil && a.status == statusGranted:
		l.granted(m, a.token, l.e.drift.trusted(sent, a.left), false)
		if l.entry == Join && l.phase == asking {
			l.mode = a.mode
		}
	case s.standing == asked || s.standing == unasked:
		l.notGranted(s, a)
	} // else a message of the grant overtook this answer, which is from before it
	l.decide()
	if l.phase == asking && l.entry == Wait {
		if s.standing != granted || l.waits { // else it may be only the first grant of a quorum's
			l.line(m, a.left)
		}
		l.giveWay()
	}
}

func (l *Lease) notGranted(s *slot, a answer) {
	s.err, s.holder = a.err, a.holder
	switch {
	case a.err != nil:
		s.unknown = s.unknown || s.standing == asked && !answered(a.err)
		s.standing = failed
	case a.status == statusQueued && l.entry == Wait:
		s.standing = queued
	case a.status == statusAbstains:
		s.standing, s.err = failed, &Abstaining{For: a.left}
		if a.left == 0 {
			l.later = append(l.later, l.e.count)
		}
	default:
		s.standing = refused
		s.reads = l.entry == Join && a.status == joinUpgrade
	}
}

// granted notes a grant, under mu; every grant comes through here: as an answer, a hand-off or found by a refresh.
func (l *Lease) granted(m *master, token fencing.Token, until instant, handed bool) {
	s := &l.slots[m.index]
	if s.standing == granted && s.token == token {
		return
	}
	if token <= s.yielded { // news from before it was given back, unless just asked for
		if s.standing == asked {
			s.standing, s.token = yielding, token
			l.sendYield(m, l.e.clock.now())
		}
		return
	}
	s.standing, s.token, s.until, s.handed, s.err = granted, token, until, handed, nil
	if l.phase == held {
		l.raiseBelow()
	}
}

// await returns when the lease is held or has failed.
func (l *Lease) await(ctx context.Context) error {
	l.mu.Lock()
	if l.phase == asking && l.ready == nil {
		l.ready = make(chan struct{})
	}
	ready, waiting := l.ready, l.phase == asking
	l.mu.Unlock()
	if waiting {
		select {
		case <-ready:
		case <-ctx.Done():
			l.mu.Lock()
			if l.phase == asking {
				l.giveUp(l.fail(l.standstill(), endOf(ctx)))
			}
			l.unlock()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// giveUp ends asking with a failure, under mu, and lets go of whatever the masters have.
func (l *Lease) giveUp(f *Failure) {
	l.failure = f
	l.end = f
	l.leaveAsking(ended)
	l.e.forget(l.hold)
	l.later = append(l.later, l.discard())
}

// leaveAsking is the only way out of the first phase, under mu.
func (l *Lease) leaveAsking(next phase) {
	l.phase = next
	if l.ready != nil {
		close(l.ready)
	}
	if l.waits {
		l.waits = false
		l.e.counters.waiting.Add(-1)
		for _, m := range l.e.masters {
			m.leaveRoom(l)
		}
	}
}

func (l *Lease) shutDown() {
	l.mu.Lock()
	defer l.unlock()
	switch l.phase {
	case asking:
		l.giveUp(l.fail(Closed, ErrClosed))
	case held:
		l.finish(ErrReleased)
		l.later = append(l.later, l.discard())
	}
}
