package rwlock_test

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// aclLines returns the lines of SECURITY.md that make the user of one Redis, and of a master of several.
func aclLines(t *testing.T) (one, several []string) {
	t.Helper()
	page, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	var found [][]string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(strings.TrimSpace(line), "ACL SETUSER ") {
			found = append(found, strings.Fields(line))
		}
	}
	require.Len(t, found, 2)
	return found[0], found[1]
}

var calledByScript = regexp.MustCompile(`call\('([A-Z]+)'|'(PUBLISH)'`)

// The lines allow what the scripts and the client call, and nothing else.
func TestACLNamesTheCommandsOfTheScripts(t *testing.T) {
	needed := map[string]bool{"+@connection": true, "+eval": true, "+evalsha": true, "+subscribe": true}
	for _, source := range scripts.All() {
		for _, match := range calledByScript.FindAllStringSubmatch(source, -1) {
			needed["+"+strings.ToLower(match[1]+match[2])] = true
		}
	}
	allowed := func(line []string) map[string]bool {
		rules := map[string]bool{}
		for _, rule := range line {
			if strings.HasPrefix(rule, "+") {
				rules[rule] = true
			}
		}
		return rules
	}
	one, several := aclLines(t)
	require.Equal(t, needed, allowed(several))
	delete(needed, "+info")
	require.Equal(t, needed, allowed(one))
}

// The user of SECURITY.md may do all that a lock needs: no command, key or channel is refused.
func TestACLOfOneRedisSuffices(t *testing.T) {
	const ttl = 400 * time.Millisecond
	one, _ := aclLines(t)
	server := testredis.Start(t)
	commandOn(t, server, one...)
	renewed := make(chan struct{})
	var once sync.Once
	trace := &rwlock.Trace{Renewed: func(rwlock.TraceEvent) { once.Do(func() { close(renewed) }) }}
	locker := func() *rwlock.Locker {
		client, err := dial(t, server.Addr(), rueidis.ClientOption{Username: "locks", Password: "secret"})
		require.NoError(t, err)
		l, err := rwlock.New(client, rwlock.WithTTL(ttl), rwlock.WithTrace(trace))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	first, second, ctx := locker(), locker(), t.Context()

	held, err := first.Lock(ctx, "orders")
	require.NoError(t, err)
	<-renewed
	_, err = second.TryRLock(ctx, "orders")
	require.ErrorIs(t, err, rwlock.ErrNotAcquired)
	waiting := make(chan error, 1)
	go func() {
		read, err := second.RLock(ctx, "orders")
		if err == nil {
			err = read.Release(ctx)
		}
		waiting <- err
	}()
	require.Eventually(t, func() bool {
		state, err := first.Inspect(ctx, "orders")
		require.NoError(t, err)
		return len(state.Waiters) == 1
	}, patience, time.Millisecond)
	require.NoError(t, held.Release(ctx))
	require.NoError(t, <-waiting)

	nestIn(t, first, second)
	require.Empty(t, commandOn(t, server, "ACL", "LOG"), "refused commands")
}

// nestIn takes a lock over the first locker, and inside it over the second.
func nestIn(t *testing.T, first, second *rwlock.Locker) {
	ctx := t.Context()
	owned := reentrant.WithOwner(ctx)
	owner, _ := reentrant.OwnerFrom(owned)
	outer, err := reentrant.New(first).Lock(owned, "nested")
	require.NoError(t, err)
	joined, err := reentrant.New(second).Lock(reentrant.AsOwner(ctx, owner), "nested")
	require.NoError(t, err)
	require.NoError(t, joined.Release(ctx))
	require.NoError(t, outer.Release(ctx))
}
