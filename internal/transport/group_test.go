package transport_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

var release = transport.NewScript(scripts.Release, "").Grouped()

// members counts the keys of the script calls that arrive, one count for each call.
func members(b *bed) func() []int {
	arrived := b.evaluations()
	return func() (all []int) {
		for _, e := range arrived() {
			all = append(all, len(e.keys))
		}
		return all
	}
}

// statuses gets what became of posted acquires and releases.
type statuses struct {
	b  *bed
	mu sync.Mutex
	of map[int]wire.Status
}

func newStatuses(b *bed) *statuses { return &statuses{b: b, of: map[int]wire.Status{}} }

func (s *statuses) call(script *transport.Script, id int, args []string) transport.Call {
	return transport.Call{
		Script: script, Keys: keysOf(strconv.Itoa(id)), Args: args,
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, _ clock.Instant) {
			read := func() (wire.Status, error) {
				if script == release {
					reply, err := wire.ReadRelease(r)
					return wire.Status(reply.Was), err
				}
				reply, err := wire.ReadAcquire(r)
				return reply.Status, err
			}
			status, err := read()
			if err != nil {
				s.b.t.Errorf("%d: %v", id, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.of[id] = status
		}),
	}
}

func (s *statuses) acquire(id int) transport.Call {
	return s.call(acquire, id, acquireArgs(hold(id), time.Minute))
}

func (s *statuses) acquires(n int) (calls []transport.Call) {
	for id := range n {
		calls = append(calls, s.acquire(id))
	}
	return calls
}

// post has the calls answered together.
func (s *statuses) post(calls []transport.Call) {
	s.b.PostAll(calls)
	synctest.Wait()
}

// Acquires and releases of a batch are one call. What it leaves is sent alone in the same exchange.
func TestCallsOfABatchAreGrouped(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		got := newStatuses(b)
		b.Post(got.acquire(90)) // the server knows the scripts of single calls
		b.Post(got.call(release, 91, []string{hold(91)}))
		synctest.Wait()
		arrived := members(b)
		calls := got.acquires(70)
		got.post(calls)
		require.Equal(t, []int{64, 6, 64, 6}, arrived(), "without the script, and with it")
		for id := range 70 {
			require.Equal(t, wire.Granted, got.of[id])
		}
		reader := acquireArgs(hold(80), time.Minute)
		read(reader)
		shorter := acquireArgs(hold(81), time.Second)
		calls = []transport.Call{
			got.acquire(0), got.call(acquire, 80, reader), got.call(acquire, 81, shorter), got.acquire(82), got.acquire(83),
		}
		calls[0].Keys = keysOf("1")
		for id := 2; id < 6; id++ {
			calls = append(calls, got.call(release, id, []string{hold(id)}))
		}
		for _, id := range []int{7, 85} { // with a tombstone if the hold is not there
			calls = append(calls, got.call(release, id, []string{hold(id), "1000"}))
		}
		calls = append(calls, got.call(release, 6, []string{hold(6), "1000", "1"}))
		got.post(calls)
		require.Equal(t, []int{1, 9, 1, 1, 1, 1}, arrived(), "a tombstone, the group, other acquires, what is left")
		want := map[int]wire.Status{0: wire.Refused, 80: wire.Granted, 81: wire.Granted, 82: wire.Granted, 83: wire.Granted}
		for id := 2; id < 8; id++ {
			want[id] = wire.Status(wire.WasGranted)
		}
		want[85] = wire.Status(wire.WasGone)
		for id := range want {
			require.Equal(t, want[id], got.of[id], "%d", id)
		}
		got.post([]transport.Call{got.acquire(85)})
		require.Equal(t, wire.Tombstoned, got.of[85])
		require.Zero(t, b.mini.Calls("SCRIPT"), "no other right than EVALSHA and EVAL")
	})
}

// A set is a call of its own, however few and with whom its members leave. It takes nothing for the sake of a lock that
// is not free, or what comes before it, and has nothing sent alone for that.
func TestASetIsACall(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		got := newStatuses(b)
		set := func(before bool, ids ...int) (calls []transport.Call) {
			of := &transport.AllOrNone{Before: before}
			for _, id := range ids {
				calls = append(calls, got.acquire(id))
				calls[len(calls)-1].AllOrNone = of
			}
			return calls
		}
		b.PostAll(set(false, 90, 91))
		b.Post(got.call(release, 90, []string{hold(90)})) // the server knows the scripts
		b.Post(got.acquire(92))
		synctest.Wait()
		arrived := members(b)
		again := got.acquire(91)
		again.Args = acquireArgs(hold(93), time.Minute)
		calls := got.acquires(4)
		for _, before := range []bool{false, true} {
			held := set(before, 4, 5, 6)
			held[1].Keys, held[1].Args = again.Keys, again.Args
			got.post(append(calls, held...))
			require.Equal(t, []int{4, 3}, arrived(), before)
			require.Equal(t, map[bool]wire.Status{false: wire.Refused, true: wire.Granted}[before], got.of[4])
			require.Equal(t, wire.Refused, got.of[5])
			require.Equal(t, wire.Refused, got.of[6])
			for id := range 4 {
				require.Equal(t, wire.Granted, got.of[id])
				calls[id] = got.call(release, id, []string{hold(id)})
			}
		}
		one, long := set(false, 10), []int(nil)
		for id := 20; id < 90; id++ {
			long = append(long, id)
		}
		got.post(append(one, set(true, long...)...))
		require.Equal(t, []int{1, 64, 6}, arrived(), "one alone is no group")
	})
}

// Where most members are left, calls are sent alone for a while: each would cost a round trip more.
func TestContendedLocksAreNotGrouped(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		got := newStatuses(b)
		held := got.acquires(8)
		for id := range held {
			held[id].Args = acquireArgs(hold(10+id), time.Minute)
			b.Post(held[id])
		}
		synctest.Wait()
		calls := got.acquires(8)
		got.post(calls)
		require.Equal(t, wire.Refused, got.of[7])
		arrived := members(b)
		rounds := 0
		for grouped := false; !grouped; rounds++ {
			got.post(calls)
			for _, keys := range arrived() {
				grouped = grouped || keys == 8
			}
		}
		require.Greater(t, rounds, 25, "some 256 calls were alone")
	})
}

// Acquires of one lock are in no group and keep their order: a writer does not pass an earlier request, and no later
// request passes a member that a group would leave.
func TestAcquiresOfOneLockKeepTheirOrder(t *testing.T) {
	reads := func(c *transport.Call) { read(c.Args) }
	shorter := func(c *transport.Call) { c.Args[0] = strings.Replace(c.Args[0], "   60000", "    1000", 1) }
	inSet := func(c *transport.Call) { c.AllOrNone = new(transport.AllOrNone) }
	alone := func(c *transport.Call) { c.Script = acquire.Alone() }
	plain := func(*transport.Call) {}
	for i, first := range []func(*transport.Call){reads, shorter, inSet, alone, plain} {
		inBed(t, func(t *testing.T, b *bed) {
			got := newStatuses(b)
			b.Post(got.acquire(90))
			synctest.Wait()
			got.post(got.acquires(96)[91:]) // the server knows the scripts
			arrived := members(b)
			calls := got.acquires(8)
			for id := 5; id < 8; id++ {
				calls[id].Keys = keysOf("one")
			}
			first(&calls[5])
			reads(&calls[7])
			calls[0], calls[5] = calls[5], calls[0]
			got.post(calls)
			require.Equal(t, wire.Granted, got.of[5])
			require.Equal(t, wire.Refused, got.of[6])
			require.Equal(t, []int{5, 1, 1, 1}, arrived(), "%d: a group of the others", i)
		})
	}
}

// A later request for one of its locks does not pass a set.
func TestASetIsNotPassed(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		got := newStatuses(b)
		got.post(got.acquires(96)[91:]) // the server knows the scripts
		calls := got.acquires(8)
		of := new(transport.AllOrNone)
		calls[0].AllOrNone, calls[1].AllOrNone = of, of
		calls[7].Keys = calls[1].Keys
		got.post(calls)
		require.Equal(t, wire.Granted, got.of[0])
		require.Equal(t, wire.Granted, got.of[1])
		require.Equal(t, wire.Refused, got.of[7])
	})
}

// A server that refuses a group gets its members one by one, and if it was for their slots no other group.
func TestAGroupThatIsRefusedIsSentAsItsMembers(t *testing.T) {
	loading := func(cmd []string) string {
		if testredis.CrossSlot(cmd) != "" {
			return "LOADING Redis is loading the dataset in memory"
		}
		return ""
	}
	for i, deny := range []func(cmd []string) string{loading, testredis.CrossSlot} {
		inBed(t, func(t *testing.T, b *bed) {
			got := newStatuses(b)
			b.link.Deny(deny)
			got.post(got.acquires(5))
			require.Len(t, got.of, 5)
			require.Equal(t, wire.Granted, got.of[4])
			require.EqualValues(t, i, b.separated.Load())
		})
	}
}

// busy has so many callers wait for answers that the next ones are gathered. The server knows the script of acquires.
func busy(b *bed) {
	b.acquire(7)
	for range 64 {
		b.mustDo()
	}
	b.link.Delay(10 * time.Millisecond)
	for id := range 3 {
		go func() { _, _ = b.try(context.Background(), id) }()
	}
	synctest.Wait()
}

func (b *bed) try(ctx context.Context, id int) (wire.HoldReply, error) {
	r, _ := b.Do(ctx, 0, acquire, keysOf(strconv.Itoa(id)), wire.Vote{}, acquireArgs(hold(id), time.Minute))
	return wire.ReadAcquire(r)
}

// Callers of one moment are one call, and each gets its own answer.
func TestCallersAreGrouped(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		busy(b)
		arrived := members(b)
		got := newStatuses(b)
		b.home().Gather(got.acquire(11))
		answered := make(chan int, 4)
		for id := 7; id < 11; id++ {
			go func() {
				reply, err := b.try(t.Context(), id)
				assert.NoError(t, err)
				assert.Equal(t, wire.Granted, reply.Status)
				answered <- id
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, answered)
		b.home().SendGathered()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, answered, 4)
		require.Equal(t, wire.Granted, got.of[11])
		require.Equal(t, []int{1, 1, 1, 5, 5, 1}, arrived(), "three, the group without and with its script, one left")
	})
}

// A batch of callers has a bound, and what comes after it is the next one.
func TestManyCallersAreSomeBatches(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		busy(b)
		var answered atomic.Int64
		for id := 7; id < 607; id++ {
			go func() {
				reply, err := b.try(t.Context(), id)
				assert.NoError(t, err)
				assert.Equal(t, wire.Granted, reply.Status)
				answered.Add(1)
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 600, answered.Load())
	})
}

// A caller that finds nobody to wait for sends its own call.
func TestACallerIsGroupedWithNobody(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		busy(b)
		for id := 3; id < 5; id++ {
			go func() {
				reply, err := b.try(t.Context(), id)
				assert.NoError(t, err)
				assert.Equal(t, wire.Granted, reply.Status)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// A call whose context ends before it has left is not sent, and its caller says so. One that has left may have run.
func TestAMemberWhoseContextEnds(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		busy(b)
		got := newStatuses(b)
		for id := 5; id < 9; id++ {
			b.home().Gather(got.acquire(10 + id))
		}
		early, endEarly := context.WithCancel(t.Context())
		late, endLate := context.WithCancel(t.Context())
		results, began := make(chan error, 1), b.now()
		try := func(ctx context.Context, id int) {
			r, sent := b.Do(ctx, 0, acquire, keysOf(strconv.Itoa(id)), wire.Vote{}, acquireArgs(hold(id), time.Minute))
			assert.Equal(t, began.Mono, sent.Mono, "for how long there was no answer")
			results <- r.NonRedisError()
		}
		go try(early, 3)
		go try(late, 4)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		endEarly()
		require.True(t, transport.DidNotRun(<-results))
		arrived := members(b)
		b.home().SendGathered()
		synctest.Wait()
		endLate()
		err := <-results
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, transport.DidNotRun(err))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1, 5, 5}, arrived(), "three, and the group without and with its script")
		require.Len(t, got.of, 4)
	})
}

// A call with a limit does not wait for its context, nor longer. An answer that comes at the limit is not the answer to
// the next call.
func TestAMemberWithALimit(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		busy(b)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var late atomic.Int64
		for round := range 40 {
			limit := time.Duration(19+round%2) * time.Millisecond // an answer takes 20
			var callers sync.WaitGroup
			for id := range 12 {
				callers.Go(func() {
					hold := hold(1000 + 20*round + id)
					r, sent := b.Do(over, limit, acquire, keysOf(hold), wire.Vote{}, acquireArgs(hold, time.Minute))
					if silent, ok := r.NonRedisError().(*transport.NoReply); ok {
						assert.Equal(t, limit, silent.After)
						assert.Equal(t, limit, b.now().Mono-sent.Mono)
						late.Add(1)
						return
					}
					reply, err := wire.ReadAcquire(r)
					assert.NoError(t, err)
					assert.Equal(t, wire.Granted, reply.Status)
					assert.Equal(t, 20*time.Millisecond, limit)
				})
			}
			callers.Wait()
			for id := range 12 {
				callers.Go(func() {
					r, _ := b.Do(over, time.Minute, acquire, keysOf("1"), wire.Vote{}, acquireArgs(hold(500+id), time.Minute))
					reply, err := wire.ReadAcquire(r)
					assert.NoError(t, err)
					assert.Equal(t, wire.Refused, reply.Status)
				})
			}
			callers.Wait()
		}
		require.Greater(t, late.Load(), int64(12*20))
	})
}

// A burst of callers leaves neither its senders nor its arrays.
func TestABurstLeavesNothing(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		busy(b)
		b.link.Delay(50 * time.Millisecond)
		got := newStatuses(b)
		send := func(calls int) {
			var all []transport.Call
			for id := range calls {
				all = append(all, got.call(release, 1000+id, []string{hold(1000 + id)}))
			}
			b.home().GatherAll(all)
			b.home().SendGathered()
			synctest.Wait()
		}
		for range 50 { // batches at once
			send(1)
		}
		time.Sleep(time.Hour)
		send(3_000)
		time.Sleep(time.Hour)
		synctest.Wait()
		senders, room := b.home().Kept()
		require.LessOrEqual(t, senders, 16)
		require.Positive(t, senders)
		require.LessOrEqual(t, room, 2*256)
	})
}
