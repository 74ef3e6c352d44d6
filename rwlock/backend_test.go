package rwlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// backend is the Redis of a world and the time that it runs in.
type backend struct {
	t      *testing.T
	ctx    context.Context      // ends with the test
	mini   *testredis.Mini      // in fake time
	server *testredis.Server    // the one real server, where there is one
	group  testredis.Deployment // the real servers, where they are more or found otherwise

	operator rueidis.Client // runs commands in fake time; nil until there is one
}

// deployment returns the real servers, where there are any.
func (b *backend) deployment() testredis.Deployment {
	if b.server != nil {
		return b.server
	}
	return b.group
}

func (b *backend) newLink() *testredis.Link {
	switch {
	case b.mini != nil:
		return b.mini.NewLink()
	case b.group != nil:
		return testredis.NewLink(b.t, b.group.Option())
	}
	return testredis.NewProxy(b.t, b.server.Addr()).Link
}

// command runs a command on the server itself, in a Cluster on the master of its key. It returns a string, an int64,
// nil, or a list or map of these.
func (b *backend) command(args ...string) any {
	b.t.Helper()
	if b.mini == nil {
		reply, err := b.deployment().Command(args...)
		require.NoError(b.t, err)
		return reply
	}
	if b.operator == nil {
		var err error
		b.operator, err = rueidis.NewClient(b.newLink().Option())
		require.NoError(b.t, err)
		b.t.Cleanup(b.operator.Close)
	}
	reply, err := b.operator.Do(b.ctx, b.operator.B().Arbitrary(args...).Build()).ToAny()
	require.NoError(b.t, err)
	return reply
}

// flushAll empties the server. Some time goes by before the next command: the server's clock is all that keeps tokens
// apart then.
func (b *backend) flushAll() {
	b.t.Helper()
	if b.mini != nil {
		b.mini.FlushAll()
		b.pass(time.Millisecond)
		return
	}
	for _, master := range b.deployment().Masters() {
		_, err := master.Command("FLUSHALL")
		require.NoError(b.t, err)
	}
}

func (b *backend) flushScripts() {
	if b.mini != nil {
		b.mini.FlushScripts()
		return
	}
	_, err := b.server.Command("SCRIPT", "FLUSH")
	require.NoError(b.t, err)
}

// keys returns the names of all keys on the server, sorted.
func (b *backend) keys() []string {
	b.t.Helper()
	if b.mini != nil {
		return b.mini.Miniredis().Keys()
	}
	var all []string
	for _, master := range b.deployment().Masters() {
		reply, err := master.Command("KEYS", "*")
		require.NoError(b.t, err)
		for _, key := range reply.([]any) {
			all = append(all, key.(string))
		}
	}
	slices.Sort(all)
	return all
}

// marker is the key that tells clients the layout of the locks. It stays.
const marker = "fencelock:master"

func isMarker(key string) bool { return strings.HasSuffix(key, ":master") }

// lockKeys returns the names of all keys on the server but the marker, sorted.
func (b *backend) lockKeys() []string {
	return slices.DeleteFunc(b.keys(), isMarker)
}

// pass lets time go by: fake time only, since on a real server nothing is exact.
func (b *backend) pass(d time.Duration) {
	b.t.Helper()
	require.NotNil(b.t, b.mini, "pass is for fake time")
	time.Sleep(d)
	b.settle()
}

// settle returns when every goroutine of the bubble waits for time to go by; on a real server, at once.
func (b *backend) settle() {
	if b.mini != nil {
		synctest.Wait()
	}
}

// patience bounds waiting for an event that never comes. It is no part of any measurement.
const patience = time.Minute

// eventually returns when the condition holds. In fake time it is looked at after every millisecond, and at once if all
// is settled.
func (b *backend) eventually(what string, holds func() bool) {
	b.t.Helper()
	limit := time.Now().Add(patience)
	for b.settle(); !holds(); b.settle() {
		if time.Now().After(limit) {
			b.t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// untilOver returns when the lease has ended.
func (b *backend) untilOver(lease *rwlock.Lease) {
	b.t.Helper()
	b.untilClosed(lease.Done())
}

// untilClosed returns when the channel is closed.
func (b *backend) untilClosed(done <-chan struct{}) {
	b.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		b.t.Fatal("the end never came")
	}
}

// at runs both, each after its time from now.
func (b *backend) at(t1 time.Duration, f1 func(), t2 time.Duration, f2 func()) {
	if t2 < t1 {
		t1, f1, t2, f2 = t2, f2, t1, f1
	}
	b.pass(t1)
	f1()
	b.pass(t2 - t1)
	f2()
}
