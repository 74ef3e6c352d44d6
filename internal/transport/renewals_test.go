package transport_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// renewal is one of the hold of that number, on a lock of its own.
func (o *outcomes) renewal(b *bed, id int, token fencing.Token, left time.Duration) *transport.Renewal {
	key := keysOf(strconv.Itoa(id))[0]
	return &transport.Renewal{
		Renewal:  wire.Renewal{Key: key, Hold: hold(id), TTL: "60000", Kind: wire.RenewWrite, Token: token},
		Deadline: b.now().Add(left), Done: o.renewed(id),
	}
}

// calls notes the holds that each renewal call names, in order.
func renewalCalls(link *testredis.Link) func() [][]string {
	var mu sync.Mutex
	var calls [][]string
	link.OnCommand(func(cmd []string) {
		if cmd[0] != "EVALSHA" {
			return
		}
		keys, _ := strconv.Atoi(cmd[2])
		var holds []string
		for i := 3 + keys + 3; i < len(cmd); i += 2 {
			holds = append(holds, cmd[i])
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, holds)
	})
	return func() [][]string {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
}

func TestEachRenewalGetsItsPartOfTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		b := newBed(t, mini.Client(t))
		var done outcomes
		for i := range 4 {
			token := fencing.Token(1)
			if i != 2 { // nobody has taken that one
				token = b.acquire(i)
			}
			b.Renew(done.renewal(b, i, token, time.Minute))
		}
		b.Renew(done.renewal(b, 0, 1, time.Minute)) // of a token that it does not have
		synctest.Wait()
		renewed := map[int][]bool{}
		for _, one := range done.take() {
			require.NoError(t, one.err)
			renewed[one.id] = append(renewed[one.id], one.renewed)
		}
		require.ElementsMatch(t, []bool{true, false}, renewed[0])
		delete(renewed, 0)
		require.Equal(t, map[int][]bool{1: {true}, 2: {false}, 3: {true}}, renewed)
		_, known := b.MaxServerTime(b.now())
		require.True(t, known, "the answer tells the server's time")
	})
}

func TestWhatExpiresFirstIsRenewedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		b.mustDo()
		calls := renewalCalls(link)
		var done outcomes
		link.Delay(10 * time.Millisecond)
		b.Renew(done.renewal(b, 1000, 1, time.Minute))
		synctest.Wait()
		var want [][]string
		for i := range 300 {
			b.Renew(done.renewal(b, 299-i, 1, time.Minute+time.Duration(299-i)*time.Second))
			if i%128 == 0 {
				want = append(want, nil)
			}
			want[i/128] = append(want[i/128], hold(i))
		}
		time.Sleep(time.Second)
		require.Len(t, done.take(), 301)
		got := calls()
		require.Equal(t, []string{hold(1000)}, got[0])
		require.Equal(t, want, got[1:], "bounded per call")
	})
}

func TestRenewalsGatherWhileOthersAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		b.mustDo()
		calls := renewalCalls(link)
		var done outcomes
		link.Delay(10 * time.Millisecond)
		for i := range 10 {
			b.Renew(done.renewal(b, i, 1, time.Minute))
			b.Post(done.call(i, false)) // is not held up by them
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Second)
		require.Len(t, done.take(), 20)
		renewing := 0
		for _, holds := range calls() {
			if len(holds) > 0 {
				renewing++
			}
		}
		require.Equal(t, 2, renewing, "the first, and what came before its answer")
	})
}

func TestRenewalsOfNoUseLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		b.mustDo()
		calls := renewalCalls(link)
		var done outcomes
		b.Renew(done.renewal(b, 0, 1, 0))
		bySuspension := done.renewal(b, 1, 1, time.Minute)
		bySuspension.Deadline.Wall = b.now().Wall
		b.Renew(bySuspension)
		b.Renew(done.renewal(b, 2, 1, time.Minute))
		synctest.Wait()
		all := done.take()
		require.ElementsMatch(t, []int{0, 1, 2}, ids(all))
		for _, one := range all {
			require.Equal(t, one.id < 2, one.err != nil)
		}
		require.Equal(t, [][]string{{hold(2)}}, calls())
		b.Post(done.call(3, false))
		b.Renew(done.renewal(b, 4, 1, 0))
		synctest.Wait()
		b.Renew(done.renewal(b, 5, 1, time.Minute))
		synctest.Wait()
		require.Equal(t, []string{hold(5)}, calls()[len(calls())-1], "and hold up nobody")
	})
}

func TestABatchOfRenewalsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t), ticking)
		link.Delay(10 * time.Millisecond)
		var done outcomes
		b.Renew(done.renewal(b, 0, 1, time.Minute))
		synctest.Wait()
		for i := range 1100 {
			b.Renew(done.renewal(b, 1+i, 1, time.Minute))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.ElementsMatch(t, []int{1, 1024, 76}, batches(done.take()))
	})
}

func TestABackoffHoldsNoRenewalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, _ := failing(t)
		for range 8 {
			time.Sleep(transport.BackoffMax)
			require.Error(t, b.do(context.Background()))
		}
		link.Restore()
		begun := b.now().Mono
		until, _ := b.Backoff(begun)
		require.Greater(t, until-begun, 10*urgentGap)
		var done outcomes
		b.Renew(done.renewal(b, 0, 1, time.Minute))
		time.Sleep(urgentGap)
		synctest.Wait()
		all := done.take()
		require.Len(t, all, 1)
		require.NoError(t, all[0].err)
		require.LessOrEqual(t, all[0].sent.Mono-begun, urgentGap)
	})
}

func TestInAClusterEveryLockIsACallOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		client := &modeClient{link.Client(t), rueidis.ClientModeCluster}
		b := newBed(t, client)
		b.mustDo()
		calls := renewalCalls(link)
		var done outcomes
		for i := range 3 {
			b.Renew(done.renewal(b, i, 1, time.Minute))
		}
		synctest.Wait()
		require.ElementsMatch(t, [][]string{{hold(0)}, {hold(1)}, {hold(2)}}, calls())
		require.False(t, b.Standalone)
	})
}

func TestAnAnswerOfAnotherLengthIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, testredis.NewMini(t).Client(t), func(cfg *transport.Config) {
			cfg.Renew = func(*transport.Master) *transport.Script { return refresh }
		})
		var done outcomes
		r := done.renewal(b, 0, 1, time.Minute)
		b.Renew(r)
		synctest.Wait()
		require.Error(t, done.take()[0].err)
	})
}

// A cluster behind one address takes the keys of one slot in a call. Once it has said so, no call has more.
func TestRenewalsGoOneByOneWhereCallsOfSeveralLocksAreRefused(t *testing.T) {
	for name, change := range map[string]func(*transport.Config){
		"one server": func(*transport.Config) {},
		"replicas":   func(cfg *transport.Config) { cfg.Replicas, cfg.ReplicaTimeout = 1, time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := testredis.NewMini(t)
				mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
					if cmd == "WAIT" {
						peer.WriteInt(1)
					}
					return cmd == "WAIT"
				})
				link := mini.NewLink()
				b := newBed(t, link.Client(t), change)
				tokens := make([]fencing.Token, 150)
				for id := range tokens {
					tokens[id] = b.acquire(id)
				}
				link.Deny(testredis.CrossSlot)
				calls := renewalCalls(link)
				var done outcomes
				for round := range 2 {
					begun, before := b.now().Mono, len(calls())
					for id, token := range tokens {
						b.Renew(done.renewal(b, id, token, time.Minute))
					}
					synctest.Wait()
					all := done.take()
					require.Len(t, all, len(tokens))
					for _, one := range all {
						require.True(t, one.err == nil && one.renewed, "%v", one)
					}
					require.Equal(t, begun, b.now().Mono, "at once")
					several := slices.ContainsFunc(calls()[before:], func(holds []string) bool { return len(holds) > 1 })
					require.Equal(t, round == 0, several, "round %d has calls of several locks", round)
				}
				require.EqualValues(t, 1, b.separated.Load())
			})
		})
	}
}

// A call of one lock that is refused so is refused for good: the server can serve no lock.
func TestACallOfOneLockThatCrossesSlotsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t), func(cfg *transport.Config) { cfg.Quarantine = time.Minute })
		link.Deny(testredis.CrossSlot)
		keys := append(keysOf("n"), "t:master")
		r, _ := b.Do(context.Background(), refresh, keys, wire.Vote{}, nil)
		err := r.Error()
		require.ErrorContains(t, err, "CROSSSLOT")
		require.True(t, b.Permanent(err))
		require.ErrorContains(t, b.Explain(err), "behind a single address")
		require.Zero(t, b.separated.Load())
	})
}

// The renewals of a call have one TTL and kind, and each goes out with its own.
func TestRenewalsOfACallAreOfOneTTLAndKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		b.mustDo()
		var done outcomes
		link.Delay(10 * time.Millisecond)
		b.Renew(done.renewal(b, 1000, 1, time.Minute))
		synctest.Wait()
		var mu sync.Mutex
		calls := map[string][]string{}
		link.OnCommand(func(cmd []string) {
			if cmd[0] != "EVALSHA" {
				return
			}
			keys, _ := strconv.Atoi(cmd[2])
			args := cmd[3+keys:]
			mu.Lock()
			defer mu.Unlock()
			for i := 3; i < len(args); i += 2 {
				calls[args[1]+args[2]] = append(calls[args[1]+args[2]], args[i])
			}
		})
		for i, terms := range []string{"60000w", "5000w", "60000w", "60000r", "5000w#00", "60000w"} {
			renewal := done.renewal(b, i, 1, time.Minute+time.Duration(i)*time.Second)
			ttl, kind, _ := strings.Cut(terms, "000")
			renewal.TTL, renewal.Kind = wire.Millis(ttl+"000"), kind
			b.Renew(renewal)
		}
		time.Sleep(time.Second)
		require.Len(t, done.take(), 7)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string][]string{
			"60000w": {hold(1000), hold(0), hold(2), hold(5)}, "60000r": {hold(3)}, "5000w": {hold(1)}, "5000w#00": {hold(4)},
		}, calls)
	})
}
