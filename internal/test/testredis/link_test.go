package testredis_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
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
		got := expect.NoError(client.Do(t.Context(), get(client, "k")).ToString()).In(t)
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
		require.Equal(t, "late", expect.NoError(client.Do(t.Context(), get(client, "k")).ToString()).In(t))
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
		client := expect.NoError(rueidis.NewClient(link.Option())).In(t)
		link.DelayDir(testredis.ToServer, time.Minute)
		err := client.Do(within(t, time.Second), set(client, "k", "v")).Error()
		require.Error(t, err)
		client.Close()
		require.False(t, mini.Miniredis().Exists("k"))

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.True(t, mini.Miniredis().Exists("k"), "what was under way when the client closed runs late")
		require.Zero(t, link.Conns())
	})
}

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
		require.EqualValues(t, 2, expect.NoError(incr()).In(t, "it strikes once"), "the lost one had run")
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
			require.Equal(t, want, expect.NoError(client.Do(t.Context(), client.B().Incr().Key("n").Build()).AsInt64()).In(t))
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
		require.Equal(t, "1", expect.NoError(results[2].ToString()).In(t), "replies keep their order")
		link.Deny(nil)
		require.NoError(t, eval("a{1}", "b{2}"))
		require.Equal(t, "3", expect.NoError(mini.Miniredis().Get("n")).In(t), "what was refused did not run")
	})
}

func TestRollbackBringsBackEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		redis := mini.Miniredis()
		require.NoError(t, redis.Set("string", "a\r\n{}"))
		redis.HSet("hash", "f", "1", "g", "")
		expect.NoError(redis.Push("list", "x", "y", "x")).In(t)
		expect.NoError(redis.SetAdd("set", "m", "n")).In(t)
		expect.NoError(redis.ZAdd("zset", 1789012345678901, "late")).In(t)
		expect.NoError(redis.ZAdd("zset", -1.5, "early")).In(t)
		redis.SetTTL("hash", time.Minute)
		redis.SetTTL("string", time.Second)
		before := redis.Dump()
		snapshot := mini.Snapshot()

		redis.FlushAll()
		require.NoError(t, redis.Set("new", "v"))
		mini.Rollback(snapshot)
		require.Equal(t, before, redis.Dump())
		require.Equal(t, time.Minute, redis.TTL("hash"))
		require.Zero(t, redis.TTL("list"))

		time.Sleep(30 * time.Second)
		mini.Rollback(snapshot)
		require.False(t, redis.Exists("string"), "it has expired meanwhile")
		require.Equal(t, 30*time.Second, redis.TTL("hash"))

		mini.Rollback(&testredis.Snapshot{})
		require.Empty(t, redis.Keys())
	})
}

func set(c rueidis.Client, key, val string) rueidis.Completed {
	return c.B().Set().Key(key).Value(val).Build()
}

func get(c rueidis.Client, key string) rueidis.Completed {
	return c.B().Get().Key(key).Build()
}

func TestMiniCrashLosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error())

		mini.Crash()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, client.Do(ctx, set(client, "k", "w")).Error())

		mini.Recover()
		require.True(t, rueidis.IsRedisNil(client.Do(t.Context(), get(client, "k")).Error()))
	})
}

func TestMiniSkewMovesItsClockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		seconds := func() int64 {
			now := expect.NoError(client.Do(t.Context(), client.B().Time().Build()).AsStrSlice()).In(t)
			at := expect.NoError(time.ParseDuration(now[0] + "s")).In(t)
			return int64(at / time.Second)
		}
		px := func(key string, ms int64) {
			require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value("v").PxMilliseconds(ms).Build()).Error())
		}
		alive := func(key string) bool {
			n := expect.NoError(client.Do(t.Context(), client.B().Exists().Key(key).Build()).AsInt64()).In(t)
			return n == 1
		}

		px("long", 60_000)
		px("short", 2_000)
		mini.Skew(3 * time.Second)
		require.Equal(t, time.Now().Unix()+3, seconds())
		require.False(t, alive("short"), "a step forward expires what it passes")
		time.Sleep(10 * time.Second)
		require.Equal(t, time.Now().Unix()+3, seconds())

		mini.Skew(-5 * time.Second)
		require.Equal(t, time.Now().Unix()-5, seconds())
		mini.Skew(0)
		require.Equal(t, time.Now().Unix(), seconds())
		require.True(t, alive("long"))
	})
}

// A write's reply waits for the log, and the messages of the write do not. What the log loses is gone after a failover.
func TestMiniLosesWhatItHasNotCommitted(t *testing.T) {
	const script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('PUBLISH', 'news', ARGV[1]) return ARGV[1]"
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			mini := testredis.NewMini(t)
			client := mini.Client(t)
			write := func(value string) error {
				return client.Do(t.Context(), client.B().Eval().Script(script).Numkeys(1).Key("k").Arg(value).Build()).Error()
			}
			require.NoError(t, write("before"))
			heard := make(chan string, 9)
			go func() {
				_ = mini.Client(t).Receive(t.Context(), client.B().Subscribe().Channel("news").Build(),
					func(m rueidis.PubSubMessage) { heard <- m.Message })
			}()
			synctest.Wait()

			mini.StallCommits()
			written := make(chan error, 1)
			go func() { written <- write("after") }()
			require.Equal(t, "after", <-heard)
			synctest.Wait()
			require.Empty(t, written)
			late := mini.NewLink().Client(t)
			require.NoError(t, late.Do(t.Context(), late.B().Ping().Build()).Error(), "a PING writes nothing")

			if lost {
				mini.LoseCommits()
				require.Error(t, <-written)
				require.Equal(t, "before", must(mini.Miniredis().Get("k")))
				require.NoError(t, write("again"))
				return
			}
			mini.ResumeCommits()
			require.NoError(t, <-written)
			require.Equal(t, "after", must(mini.Miniredis().Get("k")))
		})
	}
}

func must(value string, err error) string {
	if err != nil {
		return err.Error()
	}
	return value
}

func TestMain(m *testing.M) {
	scratch.Use("fencelock-testredis")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}
