package engine

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// subscription listens for the hand-offs of one master on a connection of its own, from the first waiter until the
// engine closes. Messages are hints: whenever the connection is new, all waiters of the master ask again, and between
// times their refresh finds whatever was missed.
type subscription struct {
	m    *master
	once sync.Once
}

func newSubscription(m *master) *subscription { return &subscription{m: m} }

// start begins listening. It does not wait: the first message that counts comes after the first refresh.
func (s *subscription) start() {
	s.once.Do(func() { s.m.e.spawn(func() { s.supervise(s.m.e.life) }) })
}

// supervise dedicates a connection again whenever the last one broke: rueidis does not.
func (s *subscription) supervise(ctx context.Context) {
	pause := backoffMin
	for ctx.Err() == nil {
		if s.listen(ctx) {
			pause = backoffMin
		}
		s.m.forget()
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		pause = min(2*pause, backoffMax)
	}
}

// listen returns when the connection is lost, and whether it had ever stood.
func (s *subscription) listen(ctx context.Context) (stood bool) {
	c, giveBack := s.m.client.Dedicate()
	defer giveBack()
	broken := c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(msg rueidis.PubSubMessage) {
		s.m.e.handOff(s.m, msg.Message)
	}})
	subscribe := c.B().Subscribe().Channel(channel(s.m.e.cfg.Prefix, s.m.e.client)).Build()
	attempt, cancel := context.WithTimeout(ctx, s.m.e.cfg.NodeTimeout)
	err := c.Do(undated{attempt}, subscribe).Error()
	cancel()
	if err != nil {
		c.Close()
		return false
	}
	s.m.wakeRooms()
	select {
	case <-broken:
	case <-ctx.Done():
	}
	c.Close()
	return true
}

// handOff takes in the message of admit in prelude.lua. The lease that it grants has at least so much left as its
// claim exceeds the most that can have gone by on the server's clock since; without a sample of that clock, or with
// nothing left, the waiter asks instead.
func (e *Engine) handOff(m *master, message string) {
	f := strings.Fields(message)
	if len(f) == 1 {
		if l := e.lookup(f[0]); l != nil {
			l.nudged(m)
		}
		return
	}
	if len(f) != 4 {
		return
	}
	token, err := fencing.ParseToken(f[1])
	at, err2 := strconv.ParseInt(f[2], 10, 64)
	claim, err3 := strconv.ParseInt(f[3], 10, 64)
	l := e.lookup(f[0])
	if err != nil || err2 != nil || err3 != nil || l == nil {
		return
	}
	now := e.clock.now()
	server, known := m.serverAtMost(now)
	left := time.Duration(claim)*time.Millisecond - time.Duration(max(server-at, 0))*time.Microsecond
	// A grant from after that moment: the clock was set forward since the sample. Behind Sentinel and in a Cluster the
	// sample may be another server's.
	if !known || left <= 0 || at > server || m.client.Mode() != rueidis.ClientModeStandalone {
		m.wakeRoom(l.name)
		return
	}
	l.handedOff(m, f[0], token, e.drift.trusted(now, left))
}

func (l *Lease) handedOff(m *master, hold string, token fencing.Token, until instant) {
	l.mu.Lock()
	defer l.unlock()
	if l.phase == asking && hold == l.hold {
		l.granted(m, token, until, true)
		l.decide()
	}
}
