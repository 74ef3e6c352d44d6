package testredis

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// faults apply to single commands of a link. They also see and count the commands that pass.
type faults struct {
	arrive func() // called before each command reaches the server; may be nil

	mu        sync.Mutex
	rules     []*rule
	pushes    func(push []string) bool
	doubled   func(push []string) bool
	duplicate func(cmd []string) bool
	check     func(cmd []string, first, second string)
	refusal   func(cmd []string) string
	onCommand func(cmd []string)
	calls     map[string]int
}

// DropNextReply lets the next matching command run on the server and then cuts its connection
// instead of delivering the reply. The channel is closed when that has happened.
func (f *faults) DropNextReply(match func(cmd []string) bool) <-chan struct{} {
	return f.arm(&rule{kind: dropReply, match: match})
}

// MuteNextReply lets the next matching command run on the server. Its reply and everything that follows on that
// connection vanish while the connection stays open. The channel is closed when that has happened.
func (f *faults) MuteNextReply(match func(cmd []string) bool) <-chan struct{} {
	return f.arm(&rule{kind: muteReply, match: match})
}

// DelayNextReply lets the next matching command run on the server. Its reply, and everything that follows on that
// connection, comes d later. The channel is closed when the server has answered.
func (f *faults) DelayNextReply(match func(cmd []string) bool, d time.Duration) <-chan struct{} {
	return f.arm(&rule{kind: delayReply, match: match, delay: d})
}

// DropNextCommand cuts the connection before the next matching command reaches the server.
// The channel is closed when that has happened.
func (f *faults) DropNextCommand(match func(cmd []string) bool) <-chan struct{} {
	return f.arm(&rule{kind: dropCommand, match: match})
}

// DropPushes makes the matching pub/sub messages vanish ("message", channel, payload) until it is called again; nil
// ends it. Confirmations of subscriptions are never lost: they are replies, which a client pairs with its commands by
// their order, and a server or a network loses such a reply only together with the connection.
func (f *faults) DropPushes(match func(push []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushes = match
}

// DuplicatePushes makes the matching pub/sub messages arrive twice until it is called again; nil ends it.
func (f *faults) DuplicatePushes(match func(push []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubled = match
}

// Duplicate makes each matching command run twice, directly one after the other. Once both
// are over, check, which may be nil, sees both replies as RESP, and the client gets the first one. It lasts
// until called again; nil ends it.
func (f *faults) Duplicate(match func(cmd []string) bool, check func(cmd []string, first, second string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.duplicate, f.check = match, check
}

// Deny answers each command for which refusal returns a text with that text, as an error, without running it. It lasts
// until called again; nil ends it.
func (f *faults) Deny(refusal func(cmd []string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = refusal
}

// OnCommand passes each command to see just before it reaches the server, and delays the command until see returns; nil
// ends it.
func (f *faults) OnCommand(see func(cmd []string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onCommand = see
}

func (f *faults) arm(r *rule) <-chan struct{} {
	r.struck = make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return r.struck
}

// judge counts a command that is about to reach the server, and returns what will happen to it.
func (f *faults) judge(frame []byte) verdict {
	f.mu.Lock()
	rules, duplicate, see, refusal := f.rules, f.duplicate, f.onCommand, f.refusal
	f.mu.Unlock()

	var v verdict
	if len(rules) > 0 || duplicate != nil || see != nil || refusal != nil {
		cmd := elements(frame)
		if see != nil {
			see(cmd)
		}
		if refusal != nil {
			if v.refusal = refusal(cmd); v.refusal != "" {
				return v
			}
		}
		v.twice = duplicate != nil && duplicate(cmd)
		v.rule = f.take(rules, cmd)
	}
	if v.rule != nil && v.rule.kind == dropCommand {
		return v
	}
	if f.arrive != nil {
		f.arrive()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := strings.ToUpper(commandName(frame))
	f.calls[name]++
	if v.twice {
		f.calls[name]++
	}
	return v
}

// take disarms and returns the oldest rule that matches; match runs outside the lock, so that it may
// use the link.
func (f *faults) take(rules []*rule, cmd []string) *rule {
	for _, r := range rules {
		if !r.match(cmd) {
			continue
		}
		f.mu.Lock()
		for i, armed := range f.rules {
			if armed == r {
				f.rules = append(f.rules[:i:i], f.rules[i+1:]...)
				f.mu.Unlock()
				return r
			}
		}
		f.mu.Unlock()
	}
	return nil
}

// copies returns how often a push arrives.
func (f *faults) copies(push []string) int {
	switch push[0] {
	case "message", "pmessage", "smessage":
	default:
		return 1
	}
	f.mu.Lock()
	loses, doubles := f.pushes, f.doubled
	f.mu.Unlock()
	switch {
	case loses != nil && loses(push):
		return 0
	case doubles != nil && doubles(push):
		return 2
	default:
		return 1
	}
}

// checkTwice passes both replies of a duplicated command to the check function, if there is one.
func (f *faults) checkTwice(cmd []string, first, second string) {
	f.mu.Lock()
	check := f.check
	f.mu.Unlock()
	if check != nil {
		check(cmd, first, second)
	}
}

// Calls returns how many commands of that name have reached the server over this link.
// Commands that a script runs do not count.
func (f *faults) Calls(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[strings.ToUpper(name)]
}

// AllCalls returns how many commands have reached the server, by upper-case name.
func (f *faults) AllCalls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// ResetCalls sets all counts to zero.
func (f *faults) ResetCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
}
