package transport_test

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// ticking makes every reading of the clock a moment of its own: the calls of one batch were sent at one moment.
func ticking(cfg *transport.Config) {
	var mu sync.Mutex
	var ticks time.Duration
	system := cfg.Clock
	cfg.Clock = func() (time.Duration, time.Time) {
		mu.Lock()
		defer mu.Unlock()
		ticks++
		mono, wall := system()
		return mono + ticks, wall.Add(ticks)
	}
}

func batches(all []outcome) []int {
	sizes := make(map[clock.Instant]int)
	for _, one := range all {
		sizes[one.sent]++
	}
	return slices.Collect(maps.Values(sizes))
}

func ids(all []outcome) (list []int) {
	for _, one := range all {
		list = append(list, one.id)
	}
	return list
}

// digested returns the first keys of the scripts that were sent by their digest.
func digested(arrived []evaluation) (keys []string) {
	for _, e := range arrived {
		if e.command == "EVALSHA" {
			keys = append(keys, e.keys[0])
		}
	}
	return keys
}

// fill puts as many batches on their way as may be, of one call each, over a link that takes its time.
func fill(b *bed) {
	b.mustDo()
	b.link.Delay(10 * time.Millisecond)
	for i := range batchesAtOnce {
		b.Post(b.call(i, false))
		synctest.Wait()
	}
}

func TestWhatGathersIsOneBatchAndBounded(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		fill(b)
		for i := range 300 {
			b.Post(b.call(4+i, false))
		}
		time.Sleep(time.Second)
		all := b.take()
		require.Len(t, all, 304)
		require.ElementsMatch(t, []int{1, 1, 1, 1, 256, 44}, batches(all))
		for _, one := range all {
			require.NoError(t, one.err)
		}
	}, ticking)
}

func TestCallsOfABatchKeepTheirOrder(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		fill(b)
		arrived := b.evaluations()
		var posted []int
		var keys []string
		for i := range 200 {
			posted, keys = append(posted, 4+i), append(keys, keysOf(strconv.Itoa(4 + i))[0])
			b.Post(b.call(4+i, i%2 == 0))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, keys, digested(arrived())[4:])
		require.Equal(t, posted, ids(b.take())[4:])
	})
}

func TestDuringABackoffWhatCanWaitFailsAtOnce(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		b.link.Restore()
		dials := b.Dials()
		wait, cause := b.Backoff()
		b.Post(b.call(0, false))
		b.Post(b.call(1, true))
		synctest.Wait()
		all := b.take()
		require.Equal(t, []int{0}, ids(all))
		require.ErrorIs(t, all[0].err, cause)
		require.True(t, transport.DidNotRun(all[0].err))
		require.Equal(t, dials, b.Dials())
		time.Sleep(wait)
		b.Post(b.call(2, false)) // the backoff is over, the gap is not
		time.Sleep(urgentGap)
		synctest.Wait()
		all = b.take()
		require.Equal(t, []int{1, 2}, ids(all))
		require.NoError(t, all[0].err)
		require.False(t, b.Failing())
	})
}

func TestServersThatForgetTheirScriptsInTheMiddleOfABatch(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		var mu sync.Mutex
		statuses := make(map[string]wire.Status)
		post := func(hold string) {
			b.Post(transport.Call{
				Script: acquire, Keys: keysOf("lock"), Args: acquireArgs(hold, time.Minute),
				To: transport.ReceiverFunc(func(r rueidis.RedisResult, _ clock.Instant) {
					reply, err := wire.ReadAcquire(r)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					statuses[hold] = reply.Status
				}),
			})
		}
		b.mustDo() // refresh is known, acquire is not
		holds := []string{hold(0), hold(1), hold(2)}
		b.mini.Freeze()
		for i := range batchesAtOnce { // no more batches may be on their way, so what follows is one
			b.Post(b.call(i, false))
			synctest.Wait()
		}
		for i, h := range holds {
			post(h)
			b.Post(b.call(i, false))
		}
		b.mini.Thaw()
		synctest.Wait()
		require.Equal(t, map[string]wire.Status{
			holds[0]: wire.Granted, holds[1]: wire.Refused, holds[2]: wire.Refused,
		}, statuses, "in order, and each its own")
		require.Len(t, b.take(), batchesAtOnce+3)
		whole := b.mini.Calls("EVAL") // one of refresh, and those of acquire that went out with the first
		require.GreaterOrEqual(t, whole, 2)
		require.LessOrEqual(t, whole, 4)
	})
}

// hold returns an id of a hold.
func hold(i int) string { return strings.Repeat("0", 20) + strconv.Itoa(100_000+i) }

func TestNothingIsSentAfterTheEnd(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.mini.Freeze()
		b.Post(b.call(0, false))
		synctest.Wait()
		begun := time.Now()
		b.stop()
		require.Zero(t, time.Since(begun), "a frozen server does not hold up the end")
		require.ErrorAs(t, b.take()[0].err, new(*transport.NoReply))
		b.Post(b.call(1, true))
		time.Sleep(patience)
		require.Empty(t, b.take())
		b.mini.Thaw()
	})
}

// What one batch was not answered does not end the next one, which has its whole time.
func TestEveryBatchHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		option := mini.Option()
		option.ConnWriteTimeout, option.PipelineMultiplex = time.Minute, -1
		b := newBed(t, dial(t, option))
		b.mustDo()
		for i := range 3 {
			b.Post(b.call(i, true)) // an answer just before the time is over
			time.Sleep(patience / 2)
			mini.Freeze()
			b.Post(b.call(i, true))
			time.Sleep(patience - time.Millisecond)
			require.Len(t, b.take(), 1)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			all := b.take()
			require.Len(t, all, 1)
			require.Equal(t, &transport.NoReply{After: patience}, all[0].err)
			mini.Thaw()
			time.Sleep(time.Second)
		}
		require.Empty(t, b.take())
	})
}

// prompt is a client that answers at once, without its server.
type prompt struct{ rueidis.Client }

func (prompt) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	return rueidis.RedisResult{}
}

// A call that is alone in its batch costs nothing beside its command, and the goroutines that send it stay.
func TestWhatAPostedCallCosts(t *testing.T) {
	if testkit.RaceDetector {
		t.Skip("the race detector allocates")
	}
	const calls = 1000
	client := prompt{testredis.NewMini(t).Client(t)}
	b := newBed(t, client)
	keys, answered := keysOf("any"), make(chan struct{}, 1)
	call := transport.Call{
		Script: refresh, Keys: keys,
		To: transport.ReceiverFunc(func(rueidis.RedisResult, clock.Instant) { answered <- struct{}{} }),
	}
	begun := runtime.NumGoroutine()
	posted := testing.AllocsPerRun(calls, func() {
		b.Post(call)
		<-answered
	})
	require.LessOrEqual(t, runtime.NumGoroutine(), begun+batchesAtOnce)
	command := testing.AllocsPerRun(calls, func() {
		client.B().Evalsha().Sha1("digest").Numkeys(int64(len(keys))).Key(keys...).Arg("0").Build()
	})
	require.LessOrEqual(t, posted, command)
}

// What waits for a server that hangs is bounded, however long it hangs: over a quorum the callers go on without it.
func TestCallsDoNotPileUpBeforeAServerThatHangs(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.link.Blackhole(testredis.Both)
		waiting, atATime := 0, 100
		for i := range 1200 {
			for range atATime {
				b.Post(b.call(i, true))
			}
			time.Sleep(25 * time.Millisecond)
			if waiting += atATime - len(b.take()); i > 400 {
				require.Less(t, waiting, 10_000, "after %d", i)
			}
		}
		b.link.Restore()
		time.Sleep(patience)
		require.Equal(t, waiting, len(b.take()))
	})
}

// What ends a hold leaves first: while a server stood still, more calls may have come than it answers at once.
func TestReleasesLeaveBeforeAllOthers(t *testing.T) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		fill(b)
		arrived := b.evaluations()
		b.Post(b.call(4, true))
		release := b.call(5, true)
		release.Script, release.Args = transport.NewScript(scripts.Release, ""), []string{hold(5)}
		b.Post(release)
		time.Sleep(time.Second)
		order := digested(arrived())
		require.Len(t, order, 6)
		require.Equal(t, []string{keysOf("5")[0], keysOf("4")[0]}, order[4:])
	})
}

// repeatable is call with a receiver whose call may run again.
func (o *outcomes) repeatable(id int) transport.Call {
	c := o.call(id, true)
	to := c.To
	c.To = transport.RepeaterFunc(func(r rueidis.RedisResult, sent clock.Instant) { to.Receive(r, sent) })
	return c
}

// inUnread runs a test with one of several masters whose marker was read, to which messages take a millisecond.
func inUnread(t *testing.T, test func(b *bed, unread *atomic.Int32)) {
	unread := new(atomic.Int32)
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.SetIdentity("set:run", b.Dials())
		b.link.Delay(time.Millisecond)
		test(b, unread)
	}, several, func(c *transport.Config) { c.OnUnread = func() { unread.Add(1) } })
}

// A call during which the connection was replaced is sent again, once the marker was read.
func TestCallIsRepeatedOnceTheMarkerWasRead(t *testing.T) {
	inUnread(t, func(b *bed, unread *atomic.Int32) {
		b.Post(b.repeatable(0))
		synctest.Wait()
		b.client.dials.Add(1)
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, b.take())
		require.Positive(t, unread.Load())
		b.SetIdentity("set:run", b.Dials())
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		all := b.take()
		require.Len(t, all, 1)
		require.NoError(t, all[0].err)
		require.False(t, b.Failing())
	})
}

// It is sent again for as long as SlowCallAfter, and then its answer is the last one.
func TestConnectionThatIsReplacedAgainAndAgain(t *testing.T) {
	inUnread(t, func(b *bed, _ *atomic.Int32) {
		b.Post(b.repeatable(0))
		begun := time.Now()
		var all []outcome
		for ; len(all) == 0; all = b.take() {
			synctest.Wait()
			b.client.dials.Add(1) // while the call is on its way
			time.Sleep(3 * time.Millisecond)
			b.SetIdentity("set:run", b.Dials())
			require.Less(t, time.Since(begun), 2*time.Second)
		}
		require.True(t, transport.StaleMarker(all[0].err), "%v", all[0].err)
		require.GreaterOrEqual(t, time.Since(begun), time.Second)
	})
}

// No call waits for a marker that is not read for longer than SlowCallAfter, and for each connection they wait once.
func TestCallsWaitForTheMarkerOnce(t *testing.T) {
	inUnread(t, func(b *bed, unread *atomic.Int32) {
		b.client.dials.Add(1)
		begun := time.Now()
		b.Post(b.call(0, true))
		time.Sleep(time.Second - time.Millisecond)
		require.Empty(t, b.take())
		time.Sleep(4 * time.Millisecond)
		require.Len(t, b.take(), 1)
		before := unread.Load()
		b.Post(b.call(1, true))
		time.Sleep(3 * time.Millisecond)
		require.Len(t, b.take(), 1, "after %v", time.Since(begun))
		require.Equal(t, before, unread.Load())
	})
}
