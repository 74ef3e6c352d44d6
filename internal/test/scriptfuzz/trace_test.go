package scriptfuzz_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A trace of calls that a client makes has no difference, and one is found in a reply, a message and a key.
func TestTraceFindsADifference(t *testing.T) {
	for name, c := range map[string]struct {
		forge func(s *testredis.Script)
		want  string
	}{
		"none":    {forge: func(*testredis.Script) {}},
		"reply":   {forge: forgeToken, want: "the model answers"},
		"message": {forge: func(s *testredis.Script) { s.Published = nil }, want: "messages []"},
		"key": {
			forge: func(s *testredis.Script) {
				if _, ran := s.Reply.([]any); ran && strings.HasSuffix(s.Keys[0], "{n}") {
					s.Command("HSET", s.Keys[0], "o:x", "1 7 w 1")
				}
			},
			want: "owners have",
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { traceForged(t, c.forge, c.want) }) })
	}
}

// forgeToken changes the token of a grant.
func forgeToken(s *testredis.Script) {
	if us, short := s.Reply.(int64); short && us > 1 {
		ttl, _ := strconv.ParseInt(strings.TrimSpace(s.Args[0][26:34]), 10, 64)
		s.Reply = []any{int64(1), us + 1, ttl, us}
	} else if reply, ok := scriptfuzz.Fields(s.Reply); ok && len(reply) > 3 && reply[0] == int64(1) {
		reply[1] = reply[1].(int64) + 1
		s.Reply = reply
	}
}

// traceForged has a lock handed to a waiter, under a trace that sees forged calls.
func traceForged(t *testing.T, forge func(*testredis.Script), want string) {
	mini := testredis.NewMini(t)
	trace := scriptfuzz.NewTrace(func(source string) string {
		sum := sha1.Sum([]byte(source))
		return hex.EncodeToString(sum[:])
	})
	var found error
	mini.OnScript(func(s *testredis.Script) {
		err := trace.Check(scriptfuzz.Call{
			Digest: s.Digest, Source: s.Source, Keys: s.Keys, Args: s.Args, Command: s.Command,
			Run: func() (any, []scriptfuzz.Publication) {
				s.Run()
				forge(s)
				return s.Reply, s.Published
			},
		})
		if found == nil {
			found = err
		}
	})
	ctx := context.Background()
	var lockers []*rwlock.Locker
	for range 2 {
		locker := expect.NoError(rwlock.New(mini.Client(t))).In(t)
		defer func() { _ = locker.Close() }()
		lockers = append(lockers, locker)
	}
	held := expect.NoError(lockers[0].Lock(ctx, "n")).In(t)
	granted := make(chan *rwlock.Lease)
	go func() {
		lease, _ := lockers[1].Lock(ctx, "n")
		granted <- lease
	}()
	synctest.Wait()
	require.NoError(t, held.Release(ctx))
	if lease := <-granted; lease != nil {
		_ = lease.Release(ctx)
	}
	synctest.Wait()
	if want == "" {
		require.NoError(t, found)
		require.Greater(t, trace.Checked, 3)
	} else {
		require.ErrorContains(t, found, want)
	}
}
