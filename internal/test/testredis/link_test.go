package testredis_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// bubble runs a test in fake time, with a client on a link of its own.
func bubble(t *testing.T, test func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		test(t, mini, link, link.Client(t))
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestBlackhole(t *testing.T) {
	tests := []struct {
		name string
		dir  testredis.Direction
		runs bool // whether the command reaches the server
	}{
		{"to server", testredis.ToServer, false},
		{"to client", testredis.ToClient, true},
		{"both", testredis.Both, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
				link.Blackhole(tt.dir)
				err := client.Do(within(t, 500*time.Millisecond), set(client, "k", "v")).Error()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, tt.runs, mini.Miniredis().Exists("k"))
				require.Equal(t, 1, link.Conns(), "the connection stays open")

				link.Restore()
				require.Eventually(t, func() bool {
					return client.Do(within(t, time.Second), set(client, "k", "w")).Error() == nil
				}, time.Minute, time.Second, "the client finds out by its own means, and dials again")
			})
		})
	}
}

func TestHeldBytesArriveAfterRestore(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		link.Hold(testredis.ToServer)
		err := client.Do(within(t, 500*time.Millisecond), set(client, "k", "v")).Error()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, mini.Miniredis().Exists("k"))

		link.Restore()
		synctest.Wait()
		require.True(t, mini.Miniredis().Exists("k"))
		got, err := client.Do(t.Context(), get(client, "k")).ToString()
		require.NoError(t, err)
		require.Equal(t, "v", got, "the connection goes on in step")
	})
}

func TestStraysArriveAfterWhatTheNextConnectionHasSent(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		strays := link.Stray()
		late := make(chan error, 1)
		go func() { late <- client.Do(t.Context(), set(client, "k", "late")).Error() }()
		synctest.Wait()
		require.False(t, mini.Miniredis().Exists("k"))

		strays.Reset()
		require.Error(t, <-late)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "next")).Error(), "over a connection of its own")
		require.Equal(t, 2, link.Conns())

		strays.Deliver()
		synctest.Wait()
		got, err := client.Do(t.Context(), get(client, "k")).ToString()
		require.NoError(t, err)
		require.Equal(t, "late", got)
		require.Equal(t, 1, link.Conns(), "a connection that was reset ends")
	})
}

func TestStraysOfALinkThatIsCutAreLost(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		strays := link.Stray()
		require.Error(t, client.Do(within(t, time.Second), set(client, "k", "late")).Error())
		link.Cut()
		strays.Deliver()
		synctest.Wait()
		require.False(t, mini.Miniredis().Exists("k"))
		require.NoError(t, client.Do(t.Context(), set(client, "k", "next")).Error())
	})
}

func TestDedicatedSubscriptionHearsThenIsCut(t *testing.T) {
	bubble(t, func(t *testing.T, _ *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		sub, cancel := client.Dedicate()
		defer cancel()
		heard := make(chan string, 8)
		ended := sub.SetPubSubHooks(rueidis.PubSubHooks{
			OnMessage: func(m rueidis.PubSubMessage) { heard <- m.Channel + "=" + m.Message },
		})
		require.NoError(t, sub.Do(t.Context(), sub.B().Subscribe().Channel("c").Build()).Error())
		publish := func(message string) {
			require.NoError(t, client.Do(t.Context(), client.B().Publish().Channel("c").Message(message).Build()).Error())
		}
		publish("1")
		require.Equal(t, "c=1", <-heard)

		link.DropPushes(func(push []string) bool { return push[0] == "message" && push[2] == "2" })
		publish("2")
		publish("3")
		require.Equal(t, "c=3", <-heard, "the second message is lost, and nothing else")

		link.DuplicatePushes(func(push []string) bool { return push[0] == "message" && push[2] == "4" })
		publish("4")
		publish("5")
		for _, message := range []string{"c=4", "c=4", "c=5"} {
			require.Equal(t, message, <-heard)
		}

		time.Sleep(time.Minute) // the idle subscription stays up over its client's own pings
		select {
		case err := <-ended:
			require.NoError(t, err)
		default:
		}
		link.Cut()
		require.Error(t, <-ended)
	})
}

func TestClosedClientStillDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		client, err := rueidis.NewClient(link.Option())
		require.NoError(t, err)
		link.DelayDir(testredis.ToServer, time.Minute)
		err = client.Do(within(t, time.Second), set(client, "k", "v")).Error()
		require.Error(t, err)
		client.Close()
		require.False(t, mini.Miniredis().Exists("k"))

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.True(t, mini.Miniredis().Exists("k"), "what was under way when the client closed runs late")
		require.Zero(t, link.Conns())
	})
}
