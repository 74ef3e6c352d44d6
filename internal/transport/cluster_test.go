package transport_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// inCluster runs a test in fake time with a master over n servers that share the slots, once it knows them.
func inCluster(t *testing.T, n int, test func(t *testing.T, b *bed, c *fakeCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, n)
		b := newBed(t, c)
		synctest.Wait()
		require.EqualValues(t, 1, b.moves.Load(), "it knows the slots")
		test(t, b, c)
	})
}

// post sends a call for the lock of that number, and returns its end.
func (b *bed) post(id int) <-chan outcome {
	ended := make(chan outcome, 2)
	call := b.call(id, true)
	call.To = transport.ReceiverFunc(func(r rueidis.RedisResult, sent clock.Instant) {
		ended <- outcome{id: id, err: r.Error(), sent: sent}
	})
	b.Post(call)
	return ended
}

func TestEachKeyHasTheNodeOfItsSlot(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, b *bed, c *fakeCluster) {
		for i := range 3 {
			key := keysOf(strconv.Itoa(c.lockOn(i)))[0]
			require.Equal(t, c.addr(i), b.At(key).Addr())
			require.NoError(t, (<-b.post(c.lockOn(i))).err)
			require.NotZero(t, c.minis[i].Calls("EVALSHA"))
			require.Same(t, b.At(key), b.At(key+":h"), "all keys of a lock")
		}
	})
}

// In a Cluster a call names all keys that its script may touch, so that a server refuses it while they move. The call
// that follows names the lock twice.
func TestACallInAClusterNamesItsKeys(t *testing.T) {
	inBedOf(t, ofMode(rueidis.ClientModeCluster), func(t *testing.T, b *bed) {
		b.mustDo()
		lock := keysOf("1")[0]
		do := func(s *transport.Script, args ...string) {
			r, _ := b.Do(t.Context(), 0, s, []string{lock}, wire.Vote{}, args)
			require.NoError(t, r.Error())
		}
		do(renew, hold(1), "60000", "1") // the server knows both scripts from here on
		arrived := b.evaluations()
		do(refresh, "-")
		do(renew, hold(1), "60000", "1")
		b.mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
			moves := strings.HasPrefix(cmd, "EVAL") && args[2] != args[3]
			if moves {
				peer.WriteError("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return moves
		})
		do(renew, hold(1), "60000", "1")
		var named [][]string
		for _, e := range arrived() {
			named = append(named, e.keys)
		}
		all := []string{lock, lock + ":h", lock + ":q", lock + ":x"}
		require.Equal(t, [][]string{all, all[:2], all[:2], {lock, lock}}, named)
	})
}

func TestAFrozenNodeHoldsUpNoOther(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, b *bed, c *fakeCluster) {
		for i := range 3 {
			require.NoError(t, (<-b.post(c.lockOn(i))).err)
		}
		c.minis[1].Freeze()
		defer c.minis[1].Thaw()
		stuck := b.post(c.lockOn(1))
		for i, id := range []int{c.lockOn(0), c.lockOn(1), c.lockOn(2)} {
			r := b.renewal(id, 7, time.Minute)
			r.Done = b.renewed(i)
			b.Renew(r)
		}
		for range 100 {
			begun := time.Now()
			require.NoError(t, (<-b.post(c.lockOn(0))).err)
			require.NoError(t, (<-b.post(c.lockOn(2))).err)
			require.Zero(t, time.Since(begun))
			time.Sleep(time.Millisecond)
		}
		var renewed []int
		for _, o := range b.take() {
			require.NoError(t, o.err)
			renewed = append(renewed, o.id)
		}
		require.ElementsMatch(t, []int{0, 2}, renewed)
		require.Empty(t, stuck)
		require.Error(t, (<-stuck).err)
		for i, failing := range []bool{false, true, false} {
			require.Equal(t, failing, b.At(keysOf(strconv.Itoa(c.lockOn(i)))[0]).Failing())
		}
	})
}

// A call that a server redirects is answered by the one that has the slot, and the next one goes there at once.
func TestARedirectedCallIsSentOn(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, b *bed, c *fakeCluster) {
		id := c.lockOn(0)
		keys := keysOf(strconv.Itoa(id))
		_, _ = b.Do(context.Background(), 0, refresh, keys, wire.Vote{}, []string{"-"})
		before := b.At(keys[0])
		c.move(0, 2)
		r, sent := b.Do(context.Background(), 0, refresh, keys, wire.Vote{}, []string{"-"})
		require.NoError(t, r.Error())
		fields := expect.NoError(r.AsIntSlice()).In(t)
		b.Sample(keys[0], sent, fields[0])
		_, known := b.Master.MaxServerTime(keys[0], before, "", b.now())
		require.False(t, known, "its time is another server's")
		require.NoError(t, (<-b.post(id)).err, "of the pipeline too")
		time.Sleep(time.Second)
		require.Equal(t, c.addr(2), b.At(keys[0]).Addr())
		require.GreaterOrEqual(t, b.moves.Load(), int64(2))
		refused := c.minis[0].Calls("EVALSHA")
		require.NoError(t, (<-b.post(id)).err)
		require.Equal(t, refused, c.minis[0].Calls("EVALSHA"))
	})
}

// What waits for a server that has no slots any more goes to those that have them; what it does not answer ends.
func TestANodeWithoutSlotsHandsOnWhatItHas(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, b *bed, c *fakeCluster) {
		id, other := c.lockOn(0), c.lockOn(2)
		require.NoError(t, (<-b.post(id)).err)
		c.minis[0].Freeze()
		defer c.minis[0].Thaw()
		var ends []<-chan outcome
		for range batchesAtOnce + 5 {
			ends = append(ends, b.post(id))
			synctest.Wait()
		}
		c.move(0, 1)
		c.move(2, 1)
		require.NoError(t, (<-b.post(other)).err)
		begun := time.Now()
		for i, end := range ends {
			require.Equal(t, i < batchesAtOnce, (<-end).err != nil, i)
		}
		require.LessOrEqual(t, time.Since(begun), 2*time.Second, "a server that is asked for the slots has a second")
		require.Equal(t, c.addr(1), b.At(keysOf(strconv.Itoa(id))[0]).Addr())
		synctest.Wait()
		for _, end := range ends {
			require.Empty(t, end, "each ends once")
		}
	})
}

// batchesAtOnce are on their way to one server while more calls gather.
const batchesAtOnce = 4

func TestTheSlotsAreAskedForOnlyWhileThereAreCalls(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, b *bed, c *fakeCluster) {
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, c.asked.Load())
		for range 60 {
			require.NoError(t, (<-b.post(c.lockOn(0))).err)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, c.asked.Load(), int64(2+60/5))
	})
}

// A server that was promoted gets its slots before the client of the Cluster has connected to it. Its calls go directly
// to it soon after that, and not only with the next periodic look at the slots. A client that never connects to it is
// not asked for the slots more often than that.
func TestAServerThatTheClientConnectsToLater(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, b *bed, c *fakeCluster) {
		call := func(lock int) {
			t.Helper()
			require.NoError(t, (<-b.post(lock)).err)
		}
		first, last := c.lockOn(0), c.lockOn(2)
		c.move(2, 1)
		call(last)
		time.Sleep(5 * time.Second)
		c.hide(2)
		c.move(0, 2)
		call(first)
		time.Sleep(300 * time.Millisecond)
		routed := c.routed.Load()
		call(first)
		require.Equal(t, routed+1, c.routed.Load(), "the client of the Cluster sent it")
		c.hide()
		time.Sleep(time.Second)
		call(first)
		require.Equal(t, routed+1, c.routed.Load(), "it was sent to the server itself")

		c.hide(0)
		c.move(2, 0)
		call(first)
		time.Sleep(10 * time.Second)
		asked := c.asked.Load()
		for range 60 {
			call(first)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, c.asked.Load()-asked, int64(2+60/5))
	})
}

// A Cluster without sharded messages is listened to once, for all its nodes.
func TestAClusterWithoutShardedMessages(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, b *bed, c *fakeCluster) { // miniredis does not know SSUBSCRIBE
		key := keysOf(strconv.Itoa(c.lockOn(1)))[0]
		moves := b.moves.Load()
		b.Listen(key)
		synctest.Wait()
		require.Greater(t, b.moves.Load(), moves, "those who wait are told to listen again")
		b.Listen(key)
		<-b.listens
		require.Equal(t, wire.Uncounted("channel"), b.Route(key), "the count of receivers is that of one node")
		require.Empty(t, b.down)

		listened := func() int {
			return slices.IndexFunc(c.minis, func(m *testredis.Mini) bool { return len(m.Miniredis().PubSubChannels("")) > 0 })
		}
		left := listened()
		lock := c.lockOn(left)
		c.move(left, (left+1)%3)
		require.NoError(t, (<-b.post(lock)).err)
		time.Sleep(time.Second)
		require.NotContains(t, []int{-1, left}, listened(), "the server without slots may have left the Cluster")
	})
}

// A server that does not know a script even where it was sent whole refuses the call.
func TestAServerThatNeverKnowsAScript(t *testing.T) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mini.Miniredis().Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if strings.HasPrefix(cmd, "EVAL") {
				c.WriteError("NOSCRIPT No matching script")
			}
			return strings.HasPrefix(cmd, "EVAL")
		})
		end := b.post(0)
		synctest.Wait()
		require.Len(t, end, 1)
		err := (<-end).err
		require.ErrorContains(t, err, "NOSCRIPT")
		require.True(t, transport.DidNotRun(err))
		require.ErrorContains(t, b.do(context.Background()), "NOSCRIPT")
	})
}

// Where all addresses of a Cluster change at once, its client dials one after the other for a node that is gone.
func TestAFailureOfAnotherServerThanTheNode(t *testing.T) {
	for last, says := range map[byte]string{1: "dial tcp 10.0.0.1:6379", 2: "asked by way of another server: dial tcp"} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster(t, 3)
			addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, last), Port: 6379}
			failure := &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: syscall.ECONNREFUSED}
			c.clients[1] = &brokenClient{c.clients[1], failure}
			b := newBed(t, c)
			synctest.Wait()
			r, _ := b.Do(t.Context(), 0, refresh, keysOf(strconv.Itoa(c.lockOn(1))), wire.Vote{}, nil)
			require.Regexp(t, "^"+says, r.Error().Error())
			require.ErrorIs(t, r.Error(), failure)
			require.True(t, transport.DidNotRun(r.Error()))
		})
	}
}

// The time limit of such a dial is neither the end of the caller's context nor its limit: the node has failed.
func TestADialOfAnotherServerThatTimesOut(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster(t, 3)
			addr := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 6379}
			c.clients[1] = &brokenClient{c.clients[1], &net.OpError{
				Op: "dial", Net: "tcp", Addr: addr, Err: context.DeadlineExceeded,
			}}
			b := newBed(t, c)
			synctest.Wait()
			key := keysOf(strconv.Itoa(c.lockOn(1)))
			r, _ := b.Do(t.Context(), limit, refresh, key, wire.Vote{}, nil)
			require.ErrorContains(t, r.Error(), "asked by way of another server")
			require.NotErrorIs(t, r.Error(), context.DeadlineExceeded)
			require.True(t, transport.DidNotRun(r.Error()))
			require.True(t, b.At(key[0]).Failing())
		})
	}
}
