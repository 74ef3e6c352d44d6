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
