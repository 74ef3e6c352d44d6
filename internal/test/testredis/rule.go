package testredis

import (
	"slices"
	"strconv"
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

// rule is a fault that applies to the next command that it matches.
type rule struct {
	kind   ruleKind
	match  func(cmd []string) bool
	delay  time.Duration
	struck chan struct{}
	once   sync.Once
}

func (r *rule) strike() { r.once.Do(func() { close(r.struck) }) }

// verdict is what will happen to a command that is about to reach the server.
type verdict struct {
	rule    *rule
	twice   bool
	refusal string // "" if the server decides
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

// CrossSlot is a refusal for Deny. A cluster behind one address gives it for a script call whose keys have several hash
// tags.
func CrossSlot(cmd []string) (refusal string) {
	if !Named("EVAL", "EVALSHA")(cmd) {
		return ""
	}
	n, _ := strconv.Atoi(cmd[2])
	tags := slices.Clone(cmd[3 : 3+n])
	for i, key := range tags {
		_, tag, _ := strings.Cut(key, "{")
		tags[i], _, _ = strings.Cut(tag, "}")
	}
	if slices.Sort(tags); len(slices.Compact(tags)) > 1 {
		return "CROSSSLOT Keys in request don't hash to the same slot"
	}
	return ""
}
