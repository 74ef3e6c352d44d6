package rwlock_test

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// restricted are parts of a program whose environment allows only algorithms that FIPS 140 approves.
var restricted = map[string]func(t *testing.T, addrs []string){
	"a lock, its renewal and its queue": restrictedLock,
	"detach and adopt":                  restrictedTicket,
	"the guard of Redis":                restrictedGuard,
	"a quorum":                          restrictedQuorum,
}

// TestOnlyApprovedAlgorithms runs each part in a process of its own, beside real servers of this one.
func TestOnlyApprovedAlgorithms(t *testing.T) {
	const role = "FENCELOCK_RESTRICTED"
	if part := os.Getenv(role); part != "" {
		require.True(t, fips140.Enforced())
		require.Panics(t, func() { sha1.Sum(nil) })
		restricted[part](t, strings.Split(os.Getenv(role+"_SERVERS"), ","))
		return
	}
	testredis.Require(t)
	var addrs []string
	for range 3 {
		addrs = append(addrs, testredis.Start(t).Addr())
	}
	for part := range restricted {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOnlyApprovedAlgorithms$")
			child.Env = append(os.Environ(), "GODEBUG=fips140=only", role+"="+part,
				role+"_SERVERS="+strings.Join(addrs, ","))
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

func restrictedLock(t *testing.T, addrs []string) {
	locker := expect.NoError(rwlock.Open(addrs[0])).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	first := expect.NoError(locker.Lock(t.Context(), "restricted")).In(t)
	require.NoError(t, first.Renew(t.Context()))
	second := make(chan error)
	go func() { second <- locker.Do(t.Context(), "restricted", func(context.Context) error { return nil }) }()
	for {
		lock := expect.NoError(locker.Inspect(t.Context(), "restricted")).In(t)
		if len(lock.Waiters) > 0 {
			break
		}
	}
	require.NoError(t, first.Release(t.Context()))
	require.NoError(t, <-second)
}

func restrictedTicket(t *testing.T, addrs []string) {
	locker := expect.NoError(rwlock.Open(addrs[0])).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	lease := expect.NoError(locker.Lock(t.Context(), "handed over")).In(t)
	ticket := expect.NoError(lease.Detach(t.Context())).In(t)
	adopted := expect.NoError(locker.Adopt(t.Context(), ticket)).In(t)
	require.NoError(t, adopted.Release(t.Context()))
}

func restrictedGuard(t *testing.T, addrs []string) {
	client := expect.NoError(rwlock.Dial(addrs[0], testredis.ClientOption(""))).In(t)
	defer client.Close()
	guard := expect.NoError(redisguard.New(client)).In(t)
	now, stale := fencing.Fence{Resource: "r", Token: 5, Mode: fencing.Write},
		fencing.Fence{Resource: "r", Token: 4, Mode: fencing.Write}
	require.NoError(t, guard.Set(t.Context(), now, "data:{r}", "v", 0))
	script := redisguard.NewScript(`return redis.call('GET', KEYS[1])`)
	_, err := guard.Do(t.Context(), stale, script, []string{"data:{r}"}, nil)
	require.ErrorIs(t, err, fencing.ErrStale)
	reply := expect.NoError(guard.Do(t.Context(), now, script, []string{"data:{r}"}, nil)).In(t)
	require.Equal(t, "v", expect.NoError(reply.ToString()).In(t))
}

func restrictedQuorum(t *testing.T, addrs []string) {
	locker := expect.NoError(redlock.Open(addrs, rwlock.WithPrefix("quorum"), rwlock.WithTTL(2*time.Second))).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	lease := expect.NoError(locker.Lock(t.Context(), "restricted")).In(t)
	require.NoError(t, lease.Renew(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
}
