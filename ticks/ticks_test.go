package ticks_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

func newTicks(t testing.TB, client rueidis.Client) *ticks.Ticks {
	t.Helper()
	return expect.NoError(ticks.New(client)).In(t)
}

func nothing(context.Context) error { return nil }

// suite is run on every kind of server; each test starts with an empty one.
var suite = []struct {
	name string
	test func(t *testing.T, client rueidis.Client)
}{
	{"OneProcessRunsATick", testOneProcessRunsATick},
	{"ALaterTickHasPassed", testALaterTickHasPassed},
	{"ATickAheadIsRefused", testATickAheadIsRefused},
	{"TheFenceOfATick", testTheFenceOfATick},
}

func TestEmbedded(t *testing.T) {
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.test(t, testredis.NewMini(t).Client(t)) })
		})
	}
}

func TestRealServer(t *testing.T) {
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			runSuite(t, testredis.StartBinary(t, binary).Client(t))
		})
	}
}

func TestCluster(t *testing.T) {
	testredis.Require(t)
	cluster := testredis.StartCluster(t, testredis.Binaries()[0], 0)
	client := expect.NoError(rwlock.Dial("", cluster.Option())).In(t)
	t.Cleanup(client.Close)
	runSuite(t, client)
}

func runSuite(t *testing.T, client rueidis.Client) {
	for _, s := range suite {
		for _, node := range client.Nodes() {
			require.NoError(t, node.Do(t.Context(), node.B().Flushall().Build()).Error())
		}
		t.Run(s.name, func(t *testing.T) { s.test(t, client) })
	}
}

// processes ask at the same moment, for each of two jobs.
func testOneProcessRunsATick(t *testing.T, client rueidis.Client) {
	due := time.Now().Truncate(time.Second)
	for _, job := range []string{"report", "mail"} {
		var runs, ran atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				first, err := newTicks(t, client).Do(t.Context(), job, due, func(context.Context) error {
					runs.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if first {
					ran.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, runs.Load(), job)
		require.EqualValues(t, 1, ran.Load(), job)
	}
	own := errors.New("own")
	fails := func(context.Context) error { return own }
	ran, err := newTicks(t, client).Do(t.Context(), "mail", due.Add(time.Microsecond), fails)
	require.True(t, ran)
	require.Equal(t, own, err, "nothing is added to the error of the work")
	ran, err = newTicks(t, client).Do(t.Context(), "mail", due.Add(time.Microsecond), nothing)
	require.False(t, ran, "the tick counts as run")
	require.NoError(t, err)

	claim := expect.NoError(client.Do(t.Context(), client.B().Hgetall().Key("ticks:{report}").Build()).AsStrMap()).In(t)
	require.Equal(t, due.UTC().Format(time.RFC3339), claim["tick"])
	require.Regexp(t, `^.+:\d+ [A-Z2-7]{26}$`, claim["by"], "for an operator")
}

func testALaterTickHasPassed(t *testing.T, client rueidis.Client) {
	tt, due := newTicks(t, client), time.Now().Truncate(time.Second).Add(-time.Hour)
	ran, err := tt.Do(t.Context(), "report", due, nothing)
	require.True(t, ran)
	require.NoError(t, err)
	ran, err = tt.Do(t.Context(), "report", due.Add(-time.Minute), nothing)
	require.False(t, ran)
	require.ErrorIs(t, err, fencing.ErrStale)
	require.ErrorContains(t, err, due.Add(-time.Minute).UTC().Format(time.RFC3339))
	require.ErrorContains(t, err, `job "report"`)
}

// A process whose clock is wrong is told so, and does not keep the other ones from the ticks until then.
func testATickAheadIsRefused(t *testing.T, client rueidis.Client) {
	tt, due := newTicks(t, client), time.Now().Truncate(time.Second)
	ran, err := tt.Do(t.Context(), "report", due.AddDate(1, 0, 0), nothing)
	require.False(t, ran)
	require.ErrorIs(t, err, ticks.ErrAhead)
	ahead := testkit.As[*ticks.AheadError](t, err)
	require.Equal(t, "report", ahead.Job)
	require.True(t, due.AddDate(1, 0, 0).Equal(ahead.Due), ahead.Due)
	require.WithinDuration(t, time.Now(), ahead.Server, time.Minute)
	require.InDelta(t, time.Minute, ahead.Within, float64(30*time.Second))

	ran, err = tt.Do(t.Context(), "report", due, nothing)
	require.True(t, ran)
	require.NoError(t, err)
}

// What a run writes to the same Redis is refused from the claim of a later tick on.
func testTheFenceOfATick(t *testing.T, client rueidis.Client) {
	tt, due := newTicks(t, client), time.Now().Truncate(time.Second)
	guard := expect.NoError(redisguard.New(client)).In(t)
	write := func(ctx context.Context, text string) error {
		fence, err := fencing.Require(ctx, "ticks/report")
		if err != nil {
			return err
		}
		require.Equal(t, fencing.Write, fence.Mode)
		return guard.Set(ctx, fence, "report:{report}", text, 0)
	}
	ran, err := tt.Do(t.Context(), "report", due.Add(-time.Second), func(ctx context.Context) error {
		require.NoError(t, write(ctx, "first"))
		ran, err := tt.Do(t.Context(), "report", due, nothing) // another process, at the next tick
		require.True(t, ran)
		require.NoError(t, err)
		return write(ctx, "late")
	})
	require.True(t, ran)
	require.ErrorIs(t, err, fencing.ErrStale)
	text := expect.NoError(client.Do(t.Context(), client.B().Get().Key("report:{report}").Build()).ToString()).In(t)
	require.Equal(t, "first", text)
}

// A claim is asked for again when its answer was lost, when the connection breaks, and when no server answers for a
// time. Each has one run.
func TestAnAnswerIsLost(t *testing.T) {
	for name, fail := range map[string]func(*testredis.Mini, *testredis.Link){
		"the answer": func(mini *testredis.Mini, link *testredis.Link) {
			link.Hold(testredis.ToClient)
			time.Sleep(time.Second)
			link.Cut()
			link.Restore()
		},
		"the connection": func(_ *testredis.Mini, link *testredis.Link) {
			link.Refuse()
			link.Cut()
			time.Sleep(20 * time.Second)
			link.Restore()
		},
		"the server": func(mini *testredis.Mini, link *testredis.Link) {
			mini.Freeze()
			time.Sleep(20 * time.Second)
			mini.Thaw()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := testredis.NewMini(t)
				link := mini.NewLink()
				tt, due := newTicks(t, link.Client(t)), time.Now()
				link.Delay(10 * time.Millisecond)
				expect.NoError(tt.Do(t.Context(), "other", due, nothing)).In(t) // loads the script
				var ran bool
				var err error
				var done sync.WaitGroup
				done.Go(func() { ran, err = tt.Do(t.Context(), "report", due, nothing) })
				time.Sleep(5 * time.Millisecond) // the request is on its way
				fail(mini, link)
				done.Wait()
				require.NoError(t, err)
				require.True(t, ran)
				ran, err = newTicks(t, mini.Client(t)).Do(t.Context(), "report", due, nothing)
				require.NoError(t, err)
				require.False(t, ran)
			})
		})
	}
}

// Do waits for the tick by the server's clock, and for a server no longer than it may.
func TestTheLimitOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		tt, begun := newTicks(t, link.Client(t)), time.Now()
		ran, err := tt.Do(t.Context(), "report", begun.Add(10*time.Second), nothing)
		require.NoError(t, err)
		require.True(t, ran)
		require.InDelta(t, 10, time.Since(begun).Seconds(), 0.1)

		_, err = tt.Do(t.Context(), "report", time.Now().Add(10*time.Second), nothing, ticks.Within(9*time.Second))
		require.ErrorIs(t, err, ticks.ErrAhead)
		ctx, cancel := context.WithCancelCause(t.Context())
		closing := errors.New("closing")
		time.AfterFunc(time.Second, func() { cancel(closing) })
		begun = time.Now()
		_, err = tt.Do(ctx, "report", begun.Add(10*time.Second), nothing)
		require.ErrorIs(t, err, closing)
		require.Equal(t, time.Second, time.Since(begun))

		link.Refuse()
		link.Cut()
		begun = time.Now()
		_, err = tt.Do(t.Context(), "report", begun, nothing, ticks.Within(3*time.Second))
		require.ErrorContains(t, err, "not claimed within 3s")
		require.ErrorContains(t, err, "refused")
		require.InDelta(t, 3, time.Since(begun).Seconds(), 0.1)
		link.Restore()
	})
}

// What does not pass by itself is said at once.
func TestRefusalsAreFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		tt, begun := newTicks(t, client), time.Now()
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key("ticks:{report}").Value("x").Build()).Error())
		_, err := tt.Do(t.Context(), "report", begun, nothing)
		require.ErrorContains(t, err, "WRONGTYPE")
		mini.Miniredis().SetError("NOPERM no permissions")
		_, err = tt.Do(t.Context(), "report", begun, nothing)
		require.ErrorContains(t, err, "NOPERM")
		mini.Miniredis().SetError("")
		client.Close()
		_, err = tt.Do(t.Context(), "report", begun, nothing)
		require.ErrorIs(t, err, rueidis.ErrClosing)
		require.Zero(t, time.Since(begun))
	})
}

// The lock of an earlier run keeps the next tick out, in its name, and the context of the work has both fences.
func TestWithoutOverlap(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *testkit.World) {
		p, q := w.Process(), w.Process()
		tp, tq, due := newTicks(w, p.Client), newTicks(w, q.Client), time.Now()
		both := func(ctx context.Context) error {
			_, err := fencing.Require(ctx, "report")
			return errors.Join(err, context.Cause(ctx))
		}
		ran, err := tp.Do(w.Ctx, "report", due, func(ctx context.Context) error {
			w.Pass(time.Minute)
			ran, err := tq.Do(w.Ctx, "report", due.Add(time.Minute), both, ticks.WithoutOverlap(q.Locker))
			require.False(w, ran)
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			require.ErrorContains(w, err, "is skipped")
			return both(ctx)
		}, ticks.WithoutOverlap(p.Locker))
		require.NoError(w, err)
		require.True(w, ran)
		ran, err = tq.Do(w.Ctx, "report", due.Add(time.Minute), both, ticks.WithoutOverlap(q.Locker))
		require.NoError(w, err)
		require.False(w, ran, "the tick was claimed, and skipped")
		w.Pass(time.Minute)
		ran, err = tq.Do(w.Ctx, "report", due.Add(2*time.Minute), both, ticks.WithoutOverlap(q.Locker))
		require.NoError(w, err)
		require.True(w, ran)

		ran, err = tq.Do(w.Ctx, "report", due.Add(2*time.Minute+time.Microsecond), func(ctx context.Context) error {
			w.FlushAll()
			<-ctx.Done()
			return nil
		}, ticks.WithoutOverlap(q.Locker))
		require.True(w, ran)
		require.ErrorIs(w, err, rwlock.ErrLost)
	})
}

func TestRefusedBeforeAnythingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		tt, now := newTicks(t, mini.Client(t)), time.Now()
		mini.ResetCalls()
		do := func(job string, due time.Time, work func(context.Context) error, opts ...ticks.Option) error {
			ran, err := tt.Do(t.Context(), job, due, work, opts...)
			require.False(t, ran)
			return err
		}
		for text, err := range map[string]error{
			`job "": is empty`:            do("", now, nothing),
			"more than 500 bytes":         do(strings.Repeat("x", 501), now, nothing),
			"has a { or a }":              do("a{b", now, nothing),
			"UTF-8":                       do("a\xff", now, nothing),
			"work":                        do("report", now, nil),
			"after 1970":                  do("report", time.Time{}, nothing),
			"token":                       do("report", now.AddDate(400, 0, 0), nothing),
			"option":                      do("report", now, nothing, nil),
			"Within":                      do("report", now, nothing, ticks.Within(0)),
			`locker "nil": must not be n`: do("report", now, nothing, ticks.WithoutOverlap(nil)),
		} {
			require.ErrorIs(t, err, fencing.ErrMalformed, text)
			require.ErrorContains(t, err, text)
		}
		_, err := ticks.New(nil)
		require.ErrorContains(t, err, "client is nil")
		_, err = new(ticks.Ticks).Do(t.Context(), "report", now, nothing)
		require.ErrorContains(t, err, "make it with New")
		require.Panics(t, func() { tt.Every(t.Context(), 0) })
		require.Empty(t, mini.AllCalls())
	})
}

// A limit of which a few nanoseconds have passed is shown as it was given.
func TestAheadErrorIsRound(t *testing.T) {
	server := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	for within, says := range map[time.Duration]string{
		time.Minute: "within 1m0s:", time.Minute - 51703: "within 1m0s:", 1: "within 1ms:", 0: "within 0s:",
	} {
		err := &ticks.AheadError{Job: "report", Due: server.Add(time.Hour), Server: server, Within: within}
		require.ErrorContains(t, err, "is due in 1h0m0s and must be "+says)
	}
}

// A tick is one script call in each process, which uses no key but the two that the page names.
func TestOneCallATick(t *testing.T) {
	server := testredis.Start(t)
	tt := newTicks(t, server.Client(t))
	expect.NoError(tt.Do(t.Context(), "report", time.UnixMicro(1), nothing)).In(t) // loads the script
	server.ResetStats()
	for range 2 {
		expect.NoError(tt.Do(t.Context(), "report", time.UnixMicro(2), nothing)).In(t)
	}
	stats := server.Stats()
	require.Equal(t, 2, stats["evalsha"].Calls)
	require.Zero(t, stats["eval"].Calls)
	require.Equal(t, 2, stats["hset"].Calls, "the register and the claim, once")
	keys := expect.NoError(server.Command("KEYS", "*")).In(t)
	require.ElementsMatch(t, []any{"ticks:{report}", "fencing:{report}:ticks/report"}, keys)
}

// Each right of the documented user is needed, and it needs no other one.
func TestDocumentedACL(t *testing.T) {
	server := testredis.Start(t)
	rights := testkit.ACLLine(t, "..", "A user for [ticks]")[3:]
	try := func(rights []string) error {
		for _, command := range [][]string{
			{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, append([]string{"ACL", "SETUSER", "jobs"}, rights...),
		} {
			expect.NoError(server.Command(command...)).In(t)
		}
		client := expect.NoError(rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{server.Addr()}, Username: "jobs", Password: "secret",
			DisableCache: true, ForceSingleClient: true,
		})).In(t)
		defer client.Close()
		tt := newTicks(t, client)
		_, err := tt.Do(t.Context(), "report", time.UnixMicro(1), nothing)
		return errors.Join(err, client.Do(t.Context(), client.B().Time().Build()).Error())
	}
	require.NoError(t, try(rights))
	for i, right := range rights {
		if right == "+@connection" || !strings.HasPrefix(right, "+") && !strings.HasPrefix(right, "~") {
			continue
		}
		require.Error(t, try(slices.Delete(slices.Clone(rights), i, i+1)), "without %s", right)
	}
}

func TestMain(m *testing.M) {
	runAsProcess()
	scratch.Use("fencelock-ticks")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}
