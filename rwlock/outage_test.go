package rwlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// durationOf is an attribute of a record.
func durationOf(r slog.Record, key string) (d time.Duration) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			d = a.Value.Duration()
		}
		return a.Key != key
	})
	return d
}

// A server that refuses those who wait for long is told of, by the log, by Trace and by Stats, and so is the end.
func TestARefusalThatLastsIsTold(t *testing.T) {
	for _, refusal := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"LOADING Redis is loading the dataset in memory",
	} {
		t.Run(strings.Fields(refusal)[0], func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				var book testkit.Log
				var told testkit.Notes[error]
				p := w.Process(book.Option(), rwlock.WithTrace(&rwlock.Trace{
					Unreachable: func(_ context.Context, _ rwlock.TraceEvent, err error) { told.Add(err) },
				}))
				p.WarmUp()
				w.Mini.Miniredis().SetError(refusal)
				waiting := []*pending{p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Ctx, "m", rwlock.Read)}
				w.Pass(900 * time.Millisecond)
				require.Zero(w, p.Stats().Unreachable)
				require.Empty(w, book.Records("refuses"))
				w.Pass(600 * time.Millisecond)
				require.Equal(w, 2, p.Stats().Unreachable)
				w.Pass(8 * time.Second)
				require.Len(w, book.Records("a server refuses its waiters"), 4, "at growing intervals")
				require.NotEmpty(w, told.All())
				for _, err := range told.All() {
					require.ErrorContains(w, err, refusal)
				}
				require.Empty(w, book.Records("s again"))

				w.Mini.Miniredis().SetError("")
				for _, a := range waiting {
					w.Release(a.Granted())
				}
				require.Zero(w, p.Stats().Unreachable)
				w.Settle()
				back := book.Records("a server answers its waiters again")
				require.Len(w, back, 1)
				require.Equal(w, slog.LevelInfo, back[0].Level)
				require.InDelta(w, 9.5, durationOf(back[0], "after").Seconds(), 0.1)
			})
		})
	}
}

// A server that does not answer is told of at growing intervals, and its return once, with how long it was gone.
func TestTheEndOfAnOutageIsTold(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const gone = 5 * time.Second
		var book testkit.Log
		p := w.Process(book.Option())
		held := p.Take("held", rwlock.Write)
		other := w.Process().Take("n", rwlock.Write)
		waiting := p.Acquire(w.Ctx, "n", rwlock.Write)
		w.Settle()
		p.CutOff(0)
		w.Pass(gone)
		require.Empty(w, book.Records("s again"))
		require.Len(w, book.Records("a server does not answer its waiters"), 3, "at once, after 1 s, and after 2 s more")
		p.Link.Restore()
		w.Pass(w.TTL)
		w.Release(other)
		w.Release(waiting.Granted())
		require.NoError(w, held.Err())
		for _, about := range []string{
			"a server answers its waiters again", "a server renews leases again",
		} {
			lines := book.Records(about)
			require.Len(w, lines, 1, about)
			require.Equal(w, slog.LevelInfo, lines[0].Level)
			require.Positive(w, durationOf(lines[0], "after"))
			require.LessOrEqual(w, durationOf(lines[0], "after"), gone+w.Refresh())
		}
	})
}

// A client that was closed is not coming back: whoever waits with it ends, and nothing is tried for ever.
func TestAClosedClientEndsTheWaiting(t *testing.T) {
	inFakeTime(t, func(w *world) {
		other := w.Process()
		held := other.Take("n", rwlock.Write)
		for _, queued := range []bool{true, false} {
			p := w.Process()
			mine := p.Take(fmt.Sprint("mine", queued), rwlock.Write)
			var waiting []*pending
			if queued {
				waiting = append(waiting, p.Queue("n", rwlock.Write), p.Queue("n", rwlock.Read))
				p.Client.Close()
			} else {
				p.Client.Close()
				waiting = append(waiting, p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Ctx, "free", rwlock.Read))
			}
			for _, a := range waiting {
				closed := time.Now()
				fails(w, a.Failed(), rwlock.ErrNoQuorum, rueidis.ErrClosing, "the client of this locker was closed")
				w.RequireLess(a.At.Sub(closed), w.Refresh()+time.Millisecond, "one refresh at the most")
			}
			err := mine.Release(w.Ctx)
			require.ErrorContains(w, err, "the client of this locker was closed")
			require.NotContains(w, err.Error(), "not retried yet", "it never is")
			require.NoError(w, p.Close())
		}
		w.Release(held)
	})
}

// Trace tells of a waiter whose Redis cannot be reached, at intervals that grow. Stats counts such waiters.
func TestUnreachableRedisIsTracedAndCounted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var told testkit.Notes[time.Time]
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ context.Context, e rwlock.TraceEvent, err error) {
			told.Add(time.Now())
			if err == nil || e.Hold == "" {
				w.Errorf("told of %+v without a cause", e)
			}
		}}))
		p.WarmUp()
		require.Zero(w, p.Stats().Unreachable)
		p.Die()
		begun := time.Now()
		ctx, cancel := context.WithCancel(w.Ctx)
		waiters := []*pending{p.Acquire(ctx, "a", rwlock.Write), p.Acquire(ctx, "b", rwlock.Read)}
		w.Pass(5 * time.Second)
		require.Equal(w, len(waiters), p.Stats().Unreachable)
		w.Pass(time.Hour)
		require.GreaterOrEqual(w, len(told.All()), 2*len(waiters))
		require.Less(w, told.All()[0].Sub(begun), time.Second)
		require.Less(w, len(told.All()), 100*len(waiters))

		p.Link.Restore()
		for _, a := range waiters {
			w.Release(a.Granted())
		}
		require.Zero(w, p.Stats().Unreachable)
		cancel()
	})
}

// A silent server is told from all others by a type, also to whoever comes while it is not tried again, and to Trace.
func TestNotTriedAgainKeepsTheTypeOfItsCause(t *testing.T) {
	inFakeTime(t, func(w *world) {
		told := make(chan error, 9)
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{Unreachable: func(_ context.Context, _ rwlock.TraceEvent, err error) {
			told <- err
		}}))
		p.WarmUp()
		p.Link.Hold(testredis.Both)
		for range 2 {
			_, err := p.TryLock(w.Ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.ErrorAs(w, err, new(*rwlock.NoReplyError))
		}
		waiting := p.Acquire(w.Ctx, "n", rwlock.Write)
		require.ErrorAs(w, <-told, new(*rwlock.NoReplyError))
		p.Link.Restore()
		w.Release(waiting.Granted())
	})
}

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
				waiting := inTurn(t.Context(), locker.Lock, "orders")
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

// A server that has died is not told of as one whose messages do not arrive; nor when it is back.
func TestADeadServerIsNotOneWithoutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		locker, told := withoutMessages(t, mini.Client(t))
		mu := locker.RWMutex("n") // it listens
		require.NoError(t, mu.Lock(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, mu.Unlock(t.Context()), "answered after the connection for messages was made")
		mini.Stop()
		time.Sleep(time.Minute)
		mini.Recover()
		time.Sleep(time.Minute)
		require.Empty(t, told)
	})
}
