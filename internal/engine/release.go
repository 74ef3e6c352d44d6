package engine

import (
	"context"
	"log/slog"
	"sync"

	"github.com/redis/rueidis"
)

// Release gives the lock back. It ignores ctx's end, keeps its values, and waits at most the release timeout for a
// quorum to confirm; what is not confirmed by then is pursued in the background. It returns nil for a lease released
// before, the *Loss of one that was lost, and *Unconfirmed.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	l.expire(l.e.clock.now())
	if l.phase != held {
		defer l.unlock()
		if l.end == ErrReleased {
			return nil
		}
		return l.end
	}
	l.e.releasing(+1) // before the registry forgets the lease, so that Close sees the one or the other
	defer l.e.releasing(-1)
	l.finish(ErrReleased)
	l.unlock()
	err := l.handBack(ctx)
	if pending, ok := err.(*Unconfirmed); ok {
		l.e.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "release not confirmed, trying again in the background",
			slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)), slog.Any("error", pending))
	}
	if hook := l.e.cfg.Hooks.Released; hook != nil {
		hook(l)
	}
	return err
}

// releasedHold is release.lua's status where the hold was granted, not just waiting or gone.
const releasedHold = 1

// tally counts the masters' answers to a release.
type tally struct {
	mu          sync.Mutex
	had, hadNot int
	failures    []NodeFailure
	need, all   int
	certain     chan struct{}
	once        sync.Once
}

func (t *tally) count(had bool, failure *NodeFailure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case failure != nil:
		t.failures = append(t.failures, *failure)
	case had:
		t.had++
	default:
		t.hadNot++
	}
	if open := t.all - t.had - t.hadNot - len(t.failures); t.released() && t.hadNot+open < t.need || t.lost() || open == 0 {
		t.once.Do(func() { close(t.certain) })
	}
}

// released reports whether a quorum has the hold no more, and so may let others in.
func (t *tally) released() bool { return t.had+t.hadNot >= t.need }

// lost reports whether a quorum did not have the hold any more when the release came: it was no lock by then.
func (t *tally) lost() bool { return t.hadNot >= t.need }

// handBack sends the release to all masters and waits for its verdict. A master that does not answer is left to a
// cleanup.
func (l *Lease) handBack(ctx context.Context) error {
	t := &tally{need: l.e.quorum(), all: len(l.e.masters), certain: make(chan struct{})}
	floor := l.e.proposal(l.e.clock.now()) // of the token that a hand-off mints, the same on all masters
	l.e.fanOut(func(m *master) { t.count(l.handBackTo(ctx, m, floor)) })
	<-t.certain
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.lost():
		return &Loss{Name: l.name, Token: l.token, Reason: Taken}
	case t.released():
		return nil
	default:
		return &Unconfirmed{Name: l.name, Need: t.need, Got: t.had + t.hadNot, Nodes: t.failures}
	}
}

func (l *Lease) handBackTo(ctx context.Context, m *master, floor string) (had bool, failure *NodeFailure) {
	l.mu.Lock()
	concerned, grave := l.slots[m.index].live(), l.tombstone(m) // answers may still come in
	l.mu.Unlock()
	if !concerned {
		return false, nil
	}
	if _, cause := m.resting(l.e.clock.now().mono); cause != nil {
		return false, l.leaveToCleanup(m, cause)
	}
	bounded := newPatience(ctx, l.e.cfg.ReleaseTimeout)
	defer bounded.stop()
	sent := l.e.clock.now()
	args := [...]string{floor, l.e.tokenTTL, l.hold, grave.ms, grave.found}
	var reply [2]int64
	err := readInts(m.exec(bounded, l.e.programs.release, l.e.sent(&l.keys), args[:]), reply[:])
	if err == nil {
		m.sample(sent, reply[1])
		return reply[0] == releasedHold, nil
	}
	if bounded.Err() != nil {
		err = &NoReply{After: l.e.clock.now().mono - sent.mono}
	}
	if !answered(err) {
		m.heard(l.e.clock.now().mono, err)
	}
	return false, l.leaveToCleanup(m, err)
}

func (l *Lease) leaveToCleanup(m *master, cause error) *NodeFailure {
	l.mu.Lock()
	rest := l.rest(m)
	l.mu.Unlock()
	rest.start()
	return &NodeFailure{Index: m.index, Addr: m.addr(), Err: cause}
}

// tombstone is what a release leaves for an acquire of its hold that comes later, as arguments of release.lua: for how
// many ms, and '1' for doing so also where it finds the hold.
type tombstone struct{ ms, found string }

// tombstone returns what may still reach the master, under mu. A request without an answer may be the one that was granted; one
// that had failed before it may be on its way all the same, over a connection that has since been replaced.
func (l *Lease) tombstone(m *master) tombstone {
	switch s := &l.slots[m.index]; {
	case s.unknown:
		return tombstone{l.terms.ttlArg, "1"}
	case s.standing == asked:
		return tombstone{l.terms.ttlArg, "0"}
	default:
		return tombstone{"0", "0"}
	}
}

// discard returns the task of releasing, in the background, whatever any master may have of this hold. Under mu.
func (l *Lease) discard() func() {
	var rests []*cleanup
	for i, m := range l.e.masters {
		if l.slots[i].live() {
			rests = append(rests, l.rest(m))
		}
	}
	return func() {
		for _, c := range rests {
			c.start()
		}
	}
}

// cleanup releases a hold on one master until it is answered, or until the hold must have expired there.
type cleanup struct {
	e         *Engine
	m         *master
	keys      []string
	hold      string
	tombstone tombstone
	until     instant
	alarm     alarm
}

// rest is what one master may have of this hold. Under mu.
func (l *Lease) rest(m *master) *cleanup {
	return &cleanup{
		e: l.e, m: m, keys: l.e.sent(&l.keys), hold: l.hold, tombstone: l.tombstone(m),
		until: l.e.clock.now().add(l.terms.TTL + l.e.cfg.NodeTimeout),
	}
}

func (c *cleanup) start() {
	c.e.mu.Lock()
	c.e.cleanups[c] = struct{}{}
	c.e.mu.Unlock()
	c.ring(c.e.clock.now())
}

func (c *cleanup) ring(now instant) {
	if c.until.passed(now) {
		c.end()
		return
	}
	if retryAt, cause := c.m.resting(now.mono); cause != nil {
		c.e.schedule.set(&c.alarm, c, retryAt)
		return
	}
	args := c.e.args(now, c.hold, c.tombstone.ms, c.tombstone.found)
	c.m.lane.post(job{program: c.e.programs.release, keys: c.keys, args: args, done: func(r rueidis.RedisResult, _ instant) {
		if err := r.Error(); err != nil && !isPermanent(err, c.m.client.Mode()) {
			c.e.schedule.set(&c.alarm, c, c.e.clock.now().add(backoffMin).mono)
			return
		}
		c.end()
	}})
}

func (c *cleanup) end() {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.cleanups, c)
	e.noteDrained()
}
