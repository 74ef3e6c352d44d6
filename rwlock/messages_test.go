package rwlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// withoutMessages is a locker that tells what it hears of messages.
func withoutMessages(t *testing.T, client rueidis.Client) (locker *rwlock.Locker, told chan error) {
	told = make(chan error, 10)
	locker, err := rwlock.New(client, rwlock.WithTrace(&rwlock.Trace{
		NoMessages: func(_ string, err error) { told <- err },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker, told
}

// Where messages cannot be had, that is told once with its cause, and those who wait are served all the same.
func TestWithoutMessagesWaitersAsk(t *testing.T) {
	t.Parallel() // its waiters ask once a second
	for name, test := range map[string]struct {
		server []string
		acl    []string
		cause  string
	}{
		"no right to the channel":   {acl: []string{"~fencelock:*", "+@all", "resetchannels"}, cause: "channel"},
		"no right to subscribe":     {acl: []string{"~*", "&*", "+@all", "-subscribe"}, cause: "NOPERM"},
		"no right to publish":       {acl: []string{"~*", "&*", "+@all", "-publish"}, cause: "can't run this command"},
		"SUBSCRIBE is not there":    {server: []string{"--rename-command", "SUBSCRIBE", ""}, cause: "unknown command"},
		"PUBLISH is not there":      {server: []string{"--rename-command", "PUBLISH", ""}, cause: "Unknown Redis command"},
		"it has another name there": {server: []string{"--rename-command", "SUBSCRIBE", "LISTEN"}, cause: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testredis.Start(t, test.server...)
			option := rueidis.ClientOption{}
			if test.acl != nil {
				commandOn(t, srv, append([]string{"ACL", "SETUSER", "app", "on", ">secret"}, test.acl...)...)
				option.Username, option.Password = "app", "secret"
			}
			client := dial(t, srv.Addr(), option)
			locker, told := withoutMessages(t, client)
			for range 3 {
				held, err := locker.Lock(t.Context(), "orders")
				require.NoError(t, err)
				waiting := make(chan error, 1)
				go func() {
					next, err := locker.Lock(t.Context(), "orders")
					if err == nil {
						err = next.Release(t.Context())
					}
					waiting <- err
				}()
				require.Eventually(t, func() bool { return locker.Stats().NoMessages == 1 }, testkit.Patience, time.Millisecond)
				require.NoError(t, held.Release(t.Context()))
				require.NoError(t, <-waiting)
			}
			cause := <-told
			require.ErrorContains(t, cause, test.cause)
			require.Empty(t, told, "it is told once")
		})
	}
}

// deaf makes a server refuse subscriptions while the switch is on.
func deaf(mini *testredis.Mini, refuses *atomic.Bool) {
	mini.Miniredis().Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "SUBSCRIBE" || !refuses.Load() {
			return false
		}
		c.WriteError("NOPERM no channel for you")
		return true
	})
}

func TestWithoutMessagesTheIntervalGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		var refuses atomic.Bool
		refuses.Store(true)
		deaf(mini, &refuses)
		locker, told := withoutMessages(t, mini.Client(t))
		handOff := func(hold time.Duration) time.Duration {
			held, err := locker.Lock(t.Context(), "n")
			require.NoError(t, err)
			var next *rwlock.Lease
			granted := make(chan error, 1)
			go func() {
				var err error
				next, err = locker.Lock(context.Background(), "n")
				granted <- err
			}()
			time.Sleep(hold)
			require.NoError(t, held.Release(t.Context()))
			begun := time.Now()
			require.NoError(t, <-granted)
			took := time.Since(begun)
			require.NoError(t, next.Release(t.Context()))
			return took
		}
		require.LessOrEqual(t, handOff(5*time.Millisecond), 20*time.Millisecond)
		require.LessOrEqual(t, handOff(100*time.Millisecond), 200*time.Millisecond)
		mini.ResetCalls()
		require.LessOrEqual(t, handOff(8*time.Second), time.Second+20*time.Millisecond)
		require.LessOrEqual(t, mini.Calls("EVALSHA"), 2+1+8+9+2,
			"a lock that stays held is not asked for a hundred times a second")
		require.Len(t, told, 1)

		refuses.Store(false)
		time.Sleep(2 * time.Minute)
		require.Zero(t, handOff(5*time.Millisecond), "messages have come back")
		require.Error(t, <-told)
	})
}

// A server that has died answers nothing, so it is not told of as one whose messages do not arrive; nor when it is
// back.
func TestADeadServerIsNotOneWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		locker, told := withoutMessages(t, mini.Client(t))
		mu := locker.RWMutex("n") // it listens
		for range 3 {
			require.NoError(t, mu.Lock(t.Context()))
			time.Sleep(time.Second)
			require.NoError(t, mu.Unlock(t.Context()), "answered after the connection for messages was made")
			mini.Stop()
			time.Sleep(time.Minute)
			mini.Recover()
			time.Sleep(time.Minute)
		}
		require.Empty(t, told)
		require.Zero(t, locker.Stats().NoMessages)
	})
}
