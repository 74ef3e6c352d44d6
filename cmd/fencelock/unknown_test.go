package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// unknownIn checks that no sub-command takes the lock orders for free.
func unknownIn(t *testing.T, cause string, at ...string) {
	t.Helper()
	for _, words := range []string{"inspect orders", "inspect orders -json", "break orders -token 1 -reason x"} {
		got := fencelock(t, append(strings.Fields(words), at...)...)
		require.Equal(t, statusFailed, got.status, "%s: %s%s", words, got.out, got.errs)
		require.Contains(t, got.errs, cause, words)
		require.NotContains(t, got.out, "free")
		switch words {
		case "inspect orders":
			require.True(t, strings.HasPrefix(got.out, "orders: unknown\n"), got.out)
		case "inspect orders -json":
			var state jsonState
			require.NoError(t, json.Unmarshal([]byte(got.out), &state))
			require.Equal(t, "unknown", state.Mode)
			require.Contains(t, state.Error, cause)
		}
	}
}

// A lock is free only if the answers say so.
func TestUnknownIsNotFree(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	hold(t, application(t, server.Option()), "orders")
	at := "-addr=" + server.Addr()

	commandOn(t, server, strings.Fields("ACL SETUSER weak on >pw ~* &* +hello +client +ping +info +scan")...)
	weak := []string{at, "-user=weak", "-password=pw", patience}
	unknownIn(t, "NOPERM", weak...)
	for _, flags := range []string{"", "-waiting", "-older-than=2h"} { // it may be such a lock
		got := fencelock(t, append(strings.Fields("list "+flags), weak...)...)
		require.Equal(t, statusFailed, got.status)
		require.Regexp(t, `(?m)^orders +unknown +- +- +- +0 +- +-$`, got.out)
		require.Contains(t, got.errs, "NOPERM")
	}
	got := fencelock(t, append([]string{"list", "-json"}, weak...)...)
	require.Contains(t, got.out, `"mode":"unknown","error":"lock \"orders\": `)

	// A replica has what it had before, or nothing, until it has synchronized.
	commandOn(t, server, "REPLICAOF", "127.0.0.1", "1")
	unknownIn(t, "the server is a replica", at, patience)
	for _, prefix := range []string{"", "none"} {
		got := fencelock(t, "list", at, patience, "-prefix", prefix)
		require.Equal(t, statusFailed, got.status)
		require.Contains(t, got.errs, "the server is a replica")
		require.NotContains(t, got.errs, "is in use")
	}
}

func TestUnknownWithoutAQuorum(t *testing.T) {
	t.Parallel()
	var addrs []string
	var servers []*testredis.Server
	for range 3 {
		s := testredis.StartBinary(t, binary(t))
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
	require.NoError(t, err)
	for _, c := range clients {
		t.Cleanup(c.Close)
	}
	testkit.FoundLongAgo(t, clients, rwlock.WithTTL(time.Hour))
	app, err := redlock.New(clients, rwlock.WithTTL(time.Hour), testredis.Patience())
	require.NoError(t, err)
	t.Cleanup(func() { _ = app.Close() })
	hold(t, app, "orders")
	require.Eventually(t, func() bool { // the last master may be later
		state, err := app.Inspect(t.Context(), "orders")
		return err == nil && len(state.Masters[2].Holders) == 1
	}, testkit.Patience, time.Millisecond)

	servers[0].Kill()
	servers[1].Kill()
	at := "-addr=" + strings.Join(addrs, ",")
	unknownIn(t, "no quorum: 1 of the 2 masters", at, patience)
	got := fencelock(t, "list", at, patience)
	require.Equal(t, statusFailed, got.status)
	require.Regexp(t, `(?m)^orders +unknown `, got.out)
	require.Contains(t, got.errs, "no quorum: 1 of the 2 masters")
}
