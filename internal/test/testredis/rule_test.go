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

func TestDropNextReplyRunsTheCommandOnce(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		incr := func() (int64, error) {
			return client.Do(t.Context(), client.B().Incr().Key("n").Build()).AsInt64()
		}
		struck := link.DropNextReply(testredis.Named("incr"))
		require.NoError(t, client.Do(t.Context(), set(client, "other", "v")).Error(), "others are not hit")
		_, err := incr()
		require.Error(t, err)
		<-struck
		n, err := incr()
		require.NoError(t, err, "it strikes once")
		require.EqualValues(t, 2, n, "the lost one had run")
		require.Equal(t, 2, mini.Calls("INCR"))
	})
}

func TestDropNextCommandNeverRuns(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		struck := link.DropNextCommand(testredis.Named("SET"))
		require.Error(t, client.Do(t.Context(), set(client, "k", "v")).Error())
		<-struck
		require.False(t, mini.Miniredis().Exists("k"))
		require.Zero(t, mini.Calls("SET"))
	})
}

func TestMuteNextReplyKeepsTheConnectionOpen(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		struck := link.MuteNextReply(testredis.Named("SET"))
		err := client.Do(within(t, 100*time.Millisecond), set(client, "k", "v")).Error()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		<-struck
		require.True(t, mini.Miniredis().Exists("k"))
		require.Equal(t, 1, link.Conns())
		require.ErrorIs(t, client.Do(within(t, 100*time.Millisecond), get(client, "k")).Error(), context.DeadlineExceeded)
	})
}

func TestDelayNextReplyHoldsWhatFollows(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		start := time.Now()
		struck := link.DelayNextReply(testredis.Named("SET"), 700*time.Millisecond)
		replies := make(chan time.Duration, 2)
		go func() {
			_ = client.Do(t.Context(), set(client, "k", "v"))
			replies <- time.Since(start)
		}()
		<-struck
		require.True(t, mini.Miniredis().Exists("k"))
		go func() {
			_ = client.Do(t.Context(), get(client, "k"))
			replies <- time.Since(start)
		}()
		require.Equal(t, 700*time.Millisecond, <-replies)
		require.Equal(t, 700*time.Millisecond, <-replies)
	})
}

func TestDuplicateRunsTwiceAndShowsBothReplies(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		type pair struct{ first, second string }
		var pairs []pair
		link.Duplicate(testredis.Named("INCR"), func(_ []string, first, second string) {
			pairs = append(pairs, pair{first, second})
		})
		for want := int64(1); want <= 5; want += 2 {
			n, err := client.Do(t.Context(), client.B().Incr().Key("n").Build()).AsInt64()
			require.NoError(t, err)
			require.Equal(t, want, n)
			require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error(), "replies stay in step")
		}
		link.Duplicate(nil, nil)
		synctest.Wait()
		require.Equal(t, []pair{{":1\r\n", ":2\r\n"}, {":3\r\n", ":4\r\n"}, {":5\r\n", ":6\r\n"}}, pairs)
		require.Equal(t, 6, mini.Calls("INCR"))
	})
}

func TestRulesFindTheirReplyAmongSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		sub, cancel := client.Dedicate()
		defer cancel()
		ended := sub.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
		require.NoError(t, sub.Do(t.Context(), sub.B().Subscribe().Channel("a", "b").Build()).Error())
		require.NoError(t, sub.Do(t.Context(), sub.B().Unsubscribe().Channel("a").Build()).Error())

		struck := link.DropNextReply(testredis.Named("SUBSCRIBE"))
		require.Error(t, sub.Do(t.Context(), sub.B().Subscribe().Channel("c").Build()).Error())
		<-struck
		require.Error(t, <-ended)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error(), "only that connection is cut")
	})
}

func TestDenyAnswersInPlaceOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, mini *testredis.Mini, link *testredis.Link, client rueidis.Client) {
		eval := func(keys ...string) error {
			return client.Do(t.Context(), client.B().Eval().Script("return redis.call('INCR', 'n')").
				Numkeys(int64(len(keys))).Key(keys...).Build()).Error()
		}
		link.Deny(testredis.CrossSlot)
		require.NoError(t, eval("a{1}", "b{1}"))
		require.NoError(t, eval())
		require.ErrorContains(t, eval("a{1}", "b{2}"), "CROSSSLOT")
		results := client.DoMulti(t.Context(), set(client, "k", "1"),
			client.B().Eval().Script("").Numkeys(2).Key("{1}", "{2}").Build(), get(client, "k"))
		require.NoError(t, results[0].Error())
		require.ErrorContains(t, results[1].Error(), "CROSSSLOT")
		value, err := results[2].ToString()
		require.NoError(t, err)
		require.Equal(t, "1", value, "replies keep their order")
		link.Deny(nil)
		require.NoError(t, eval("a{1}", "b{2}"))
		n, err := mini.Miniredis().Get("n")
		require.NoError(t, err)
		require.Equal(t, "3", n, "what was refused did not run")
	})
}
