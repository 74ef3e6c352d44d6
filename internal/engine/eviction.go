package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/seed74116694/fencelock/internal/transport"
)

// evictions are the servers that may have evicted a hold. A server is asked for its policy once, after the first loss
// of a hold that it does not have any more: eviction is the usual cause if no data was lost, and nothing else reports
// it.
type evictions struct {
	mu sync.Mutex
	of map[*transport.Node]string // the policy of a server that evicts; "" if it does not, or does not say
}

// suspect asks the servers of this lock for their policies, each once. It waits for no answer.
func (e *Engine) suspect(lock string) {
	for _, m := range e.masters {
		n := m.At(lock)
		e.evictions.mu.Lock()
		_, asked := e.evictions.of[n]
		if e.evictions.of == nil {
			e.evictions.of = make(map[*transport.Node]string)
		}
		if !asked {
			maps.DeleteFunc(e.evictions.of, func(other *transport.Node, _ string) bool { return other.Ended() })
			e.evictions.of[n] = ""
		}
		e.evictions.mu.Unlock()
		if !asked {
			e.tasks.spawn(func() { e.askForPolicy(n) })
		}
	}
}

func (e *Engine) askForPolicy(n *transport.Node) {
	ctx, cancel := context.WithTimeout(e.life, patience)
	defer cancel()
	policy := n.Evicts(ctx)
	if policy == "" {
		return
	}
	e.evictions.mu.Lock()
	e.evictions.of[n] = policy
	e.evictions.mu.Unlock()
	e.observers.warn("a server evicts keys, and locks among them: it needs maxmemory-policy noeviction",
		slog.String("master", n.Addr()), slog.String("policy", policy))
}

// Cause returns why the masters did not renew the lease. If they do not have the hold any more, it names the masters
// that are known to evict keys by now, and is nil if there are none.
func (l *Loss) Cause() error {
	if l.Reason != Taken || l.by == nil {
		return l.Err
	}
	var evicting NodeFailures
	l.by.evictions.mu.Lock()
	defer l.by.evictions.mu.Unlock()
	for i, m := range l.by.masters {
		n := m.At(l.lock)
		if policy := l.by.evictions.of[n]; policy != "" {
			err := fmt.Errorf("%w: its maxmemory-policy is %s, locks need noeviction", errEvicts, policy)
			evicting = append(evicting, NodeFailure{Index: i, Addr: n.Addr(), Err: err})
		}
	}
	if evicting == nil {
		return nil
	}
	return evicting
}

var errEvicts = errors.New("evicts keys")
