package testredis

import (
	"strings"
	"sync"
	"time"
)

type ruleKind int

const (
	dropReply ruleKind = iota
	muteReply
	delayReply
	dropCommand
)

// rule is a fault that strikes the next command that it matches.
type rule struct {
	kind   ruleKind
	match  func(cmd []string) bool
	delay  time.Duration
	struck chan struct{}
	once   sync.Once
}

func (r *rule) strike() { r.once.Do(func() { close(r.struck) }) }

// verdict is what awaits a command that is about to reach the server.
type verdict struct {
	rule  *rule
	twice bool
}

// Named matches commands by name, in any case.
func Named(names ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		for _, name := range names {
			if strings.EqualFold(cmd[0], name) {
				return true
			}
		}
		return false
	}
}

// DropNextReply lets the next matching command run on the server and then cuts its connection
// instead of delivering the reply. The channel is closed when that has happened.
func (l *Link) DropNextReply(match func(cmd []string) bool) <-chan struct{} {
	return l.arm(&rule{kind: dropReply, match: match})
}

// MuteNextReply lets the next matching command run on the server; its reply and all that follows on
// that connection vanish while it stays open. The channel is closed when that has happened.
func (l *Link) MuteNextReply(match func(cmd []string) bool) <-chan struct{} {
	return l.arm(&rule{kind: muteReply, match: match})
}

// DelayNextReply lets the next matching command run on the server; its reply, and what follows it on
// that connection, come d later. The channel is closed when the server has answered.
func (l *Link) DelayNextReply(match func(cmd []string) bool, d time.Duration) <-chan struct{} {
	return l.arm(&rule{kind: delayReply, match: match, delay: d})
}

// DropNextCommand cuts the connection before the next matching command reaches the server.
// The channel is closed when that has happened.
func (l *Link) DropNextCommand(match func(cmd []string) bool) <-chan struct{} {
	return l.arm(&rule{kind: dropCommand, match: match})
}

// DropPushes makes the matching pub/sub messages vanish ("message", channel, payload) until it is
// called again; nil ends it.
func (l *Link) DropPushes(match func(push []string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pushes = match
}

// Duplicate makes each matching command run twice, directly one after the other. Once both
// are over, check, which may be nil, sees both replies as RESP, and the client gets the first one. It lasts
// until called again; nil ends it.
func (l *Link) Duplicate(match func(cmd []string) bool, check func(cmd []string, first, second string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.duplicate, l.check = match, check
}

// OnCommand shows each command to see just before it reaches the server, which waits meanwhile;
// nil ends it.
func (l *Link) OnCommand(see func(cmd []string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onCommand = see
}

func (l *Link) arm(r *rule) <-chan struct{} {
	r.struck = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules = append(l.rules, r)
	return r.struck
}

// judge counts a command that is about to reach the server, and says what awaits it.
func (l *Link) judge(frame []byte) verdict {
	l.mu.Lock()
	rules, duplicate, see := l.rules, l.duplicate, l.onCommand
	l.mu.Unlock()

	var v verdict
	if len(rules) > 0 || duplicate != nil || see != nil {
		cmd := elements(frame)
		if see != nil {
			see(cmd)
		}
		v.twice = duplicate != nil && duplicate(cmd)
		v.rule = l.take(rules, cmd)
	}
	if v.rule != nil && v.rule.kind == dropCommand {
		return v
	}
	if l.arrive != nil {
		l.arrive()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name := strings.ToUpper(commandName(frame))
	l.calls[name]++
	if v.twice {
		l.calls[name]++
	}
	return v
}

// take disarms and returns the oldest rule that matches; match runs outside the lock, so that it may
// use the link.
func (l *Link) take(rules []*rule, cmd []string) *rule {
	for _, r := range rules {
		if !r.match(cmd) {
			continue
		}
		l.mu.Lock()
		for i, armed := range l.rules {
			if armed == r {
				l.rules = append(l.rules[:i:i], l.rules[i+1:]...)
				l.mu.Unlock()
				return r
			}
		}
		l.mu.Unlock()
	}
	return nil
}

func (l *Link) losesPush(push []string) bool {
	l.mu.Lock()
	match := l.pushes
	l.mu.Unlock()
	return match != nil && match(push)
}
