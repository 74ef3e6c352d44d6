package rwlock_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// scriptNames returns the scripts by their digest and by their source.
var scriptNames = sync.OnceValue(func() map[string]scripts.Name {
	names := make(map[string]scripts.Name)
	for name, source := range scripts.All() {
		sum := sha1.Sum([]byte(source))
		names[source], names[hex.EncodeToString(sum[:])] = name, name
	}
	return names
})

// scriptOf returns which script a command runs, by digest or whole, or "" for none.
func scriptOf(cmd []string) scripts.Name {
	if len(cmd) < 2 {
		return ""
	}
	return scriptNames()[cmd[1]]
}

// running matches the commands that run one of these scripts.
func running(names ...scripts.Name) func(cmd []string) bool {
	return func(cmd []string) bool {
		name := scriptOf(cmd)
		return name != "" && slices.Contains(names, name)
	}
}

// holdsOf returns the holds that a command concerns: the argument after the vote, or of a renewal every third from
// there. See the headers in scripts.
func holdsOf(cmd []string) (holds []string) {
	keys, err := strconv.Atoi(cmd[2])
	if err != nil {
		return nil
	}
	own := cmd[3+keys+1:]
	if scriptOf(cmd) != scripts.Renew {
		return own[:1]
	}
	for i := 0; i < len(own); i += 3 {
		holds = append(holds, own[i])
	}
	return holds
}

// warmUp makes the server know the scripts, so that each request is one command from now on.
func (p *process) warmUp() {
	p.w.t.Helper()
	lease := p.lock("warm up", rwlock.Write)
	require.NoError(p.w.t, lease.Renew(p.w.ctx))
	p.w.release(lease)
}

// ending notes when a lease ends.
type ending struct {
	mu sync.Mutex
	at time.Time
}

// watch notes the moment at which the lease's context ends, which is what work under the lock sees.
func watch(lease *rwlock.Lease) *ending {
	e := new(ending)
	ctx := lease.Context(context.Background())
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.at = time.Now()
	})
	return e
}

// before reports whether the lease had ended before that moment.
func (e *ending) before(t time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.at.IsZero() && e.at.Before(t)
}

// The waiters' own times for the TTL of the world, as documented: a waiter's lease, which is also how long a hand-off
// lasts unconfirmed, and the pause between two refreshes.
func (w *world) claim() time.Duration   { return min(w.ttl, 3*time.Second) }
func (w *world) refresh() time.Duration { return w.claim() / 3 }
