package transport_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
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
func (b *bed) renewal(id int, token fencing.Token, left time.Duration) *transport.Renewal {
	key := keysOf(strconv.Itoa(id))[0]
	return &transport.Renewal{
		Renewal:  wire.Renewal{Key: key, Hold: hold(id), TTL: "60000", Kind: wire.RenewWrite, Token: token},
		Deadline: b.now().Add(left), Done: b.renewed(id),
	}
}

// renewals returns the holds that each renewal call names which arrived since it was called last, in order.
func (b *bed) renewals() func() [][]string {
	arrived := b.evaluations()
	return func() (calls [][]string) {
		for _, e := range arrived() {
			if e.command == "EVALSHA" && len(e.args) > 3 {
				calls = append(calls, holdsIn(e))
			}
		}
		return calls
	}
}

// holdsIn returns the holds that a renewal call names.
func holdsIn(e evaluation) (holds []string) {
	for i := 3; i < len(e.args); i += 2 {
		holds = append(holds, e.args[i])
	}
	return holds
}

func TestEachRenewalGetsItsPartOfTheAnswer(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		for i := range 4 {
			token := fencing.Token(1)
			if i != 2 { // nobody has taken that one
				token = b.acquire(i)
			}
			b.Renew(b.renewal(i, token, time.Minute))
		}
		b.Renew(b.renewal(0, 1, time.Minute)) // of a token that it does not have
		synctest.Wait()
		renewed := map[int][]bool{}
		for _, one := range b.take() {
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
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		calls := b.renewals()
		b.link.Delay(10 * time.Millisecond)
		b.Renew(b.renewal(1000, 1, time.Minute))
		synctest.Wait()
		var want [][]string
		for i := range 300 {
			b.Renew(b.renewal(299-i, 1, time.Minute+time.Duration(299-i)*time.Second))
			if i%128 == 0 {
				want = append(want, nil)
			}
			want[i/128] = append(want[i/128], hold(i))
		}
		time.Sleep(time.Second)
		require.Len(t, b.take(), 301)
		got := calls()
		require.Equal(t, []string{hold(1000)}, got[0])
		require.Equal(t, want, got[1:], "bounded per call")
	})
}

func TestRenewalsGatherWhileOthersAreOnTheirWay(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		calls := b.renewals()
		b.link.Delay(10 * time.Millisecond)
		for i := range 10 {
			b.Renew(b.renewal(i, 1, time.Minute))
			b.Post(b.call(i, false)) // is not held up by them
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Second)
		require.Len(t, b.take(), 20)
		require.Len(t, calls(), 2, "the first, and what came before its answer")
	})
}

func TestRenewalsOfNoUseLeave(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		calls := b.renewals()
		b.Renew(b.renewal(0, 1, 0))
		bySuspension := b.renewal(1, 1, time.Minute)
		bySuspension.Deadline.Wall = b.now().Wall
		b.Renew(bySuspension)
		b.Renew(b.renewal(2, 1, time.Minute))
		synctest.Wait()
		all := b.take()
		require.ElementsMatch(t, []int{0, 1, 2}, ids(all))
		for _, one := range all {
			require.Equal(t, one.id < 2, one.err != nil)
		}
		require.Equal(t, [][]string{{hold(2)}}, calls())
		b.Post(b.call(3, false))
		b.Renew(b.renewal(4, 1, 0))
		synctest.Wait()
		b.Renew(b.renewal(5, 1, time.Minute))
		synctest.Wait()
		require.Equal(t, [][]string{{hold(5)}}, calls(), "and hold up nobody")
	})
}

func TestABatchOfRenewalsIsBounded(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.link.Delay(10 * time.Millisecond)
		b.Renew(b.renewal(0, 1, time.Minute))
		synctest.Wait()
		for i := range 1100 {
			b.Renew(b.renewal(1+i, 1, time.Minute))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.ElementsMatch(t, []int{1, 1024, 76}, batches(b.take()))
	}, ticking)
}

func TestABackoffHoldsNoRenewalBack(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		for range 8 {
			time.Sleep(transport.BackoffMax)
			require.Error(t, b.do(context.Background()))
		}
		b.link.Restore()
		begun := b.now().Mono
		wait, _ := b.Backoff()
		require.Greater(t, wait, 10*urgentGap)
		b.Renew(b.renewal(0, 1, time.Minute))
		time.Sleep(urgentGap)
		synctest.Wait()
		all := b.take()
		require.Len(t, all, 1)
		require.NoError(t, all[0].err)
		require.LessOrEqual(t, all[0].sent.Mono-begun, urgentGap)
	})
}

func TestInAClusterEveryLockIsACallOfItsOwn(t *testing.T) {
	inBedOf(t, ofMode(rueidis.ClientModeCluster), func(t *testing.T, b *bed) {
		b.mustDo()
		calls := b.renewals()
		for i := range 3 {
			b.Renew(b.renewal(i, 1, time.Minute))
		}
		synctest.Wait()
		require.ElementsMatch(t, [][]string{{hold(0)}, {hold(1)}, {hold(2)}}, calls())
		require.False(t, b.Standalone)
	})
}

func TestAnAnswerOfAnotherLengthIsNone(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.Renew(b.renewal(0, 1, time.Minute))
		synctest.Wait()
		require.Error(t, b.take()[0].err)
	}, func(cfg *transport.Config) { cfg.Renew = func(*transport.Master) *transport.Script { return refresh } })
}

// A cluster behind one address takes the keys of one slot in a call. Once it has said so, no call has more.
func TestRenewalsGoOneByOneWhereCallsOfSeveralLocksAreRefused(t *testing.T) {
	for name, change := range map[string]func(*transport.Config){
		"one server": func(*transport.Config) {},
		"replicas":   func(cfg *transport.Config) { cfg.Replicas, cfg.ReplicaTimeout = 1, time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			inBed(t, func(t *testing.T, b *bed) {
				b.mini.Miniredis().Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
					if cmd == "WAIT" {
						peer.WriteInt(1)
					}
					return cmd == "WAIT"
				})
				tokens := make([]fencing.Token, 150)
				for id := range tokens {
					tokens[id] = b.acquire(id)
				}
				b.link.Deny(testredis.CrossSlot)
				calls := b.renewals()
				for round := range 2 {
					begun := b.now().Mono
					for id, token := range tokens {
						b.Renew(b.renewal(id, token, time.Minute))
					}
					synctest.Wait()
					all := b.take()
					require.Len(t, all, len(tokens))
					for _, one := range all {
						require.True(t, one.err == nil && one.renewed, "%v", one)
					}
					require.Equal(t, begun, b.now().Mono, "at once")
					several := slices.ContainsFunc(calls(), func(holds []string) bool { return len(holds) > 1 })
					require.Equal(t, round == 0, several, "round %d has calls of several locks", round)
				}
				require.EqualValues(t, 1, b.separated.Load())
			}, change)
		})
	}
}

// A call of one lock that is refused so is refused for good: the server can serve no lock.
func TestACallOfOneLockThatCrossesSlotsIsRefused(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.link.Deny(testredis.CrossSlot)
		keys := append(keysOf("n"), "t:master")
		r, _ := b.Do(context.Background(), 0, refresh, keys, wire.Vote{}, nil)
		err := r.Error()
		require.ErrorContains(t, err, "CROSSSLOT")
		require.True(t, b.Permanent(err))
		require.ErrorContains(t, b.Explain(err), "behind a single address")
		require.Zero(t, b.separated.Load())
	}, func(cfg *transport.Config) { cfg.Quarantine = time.Minute })
}

// The renewals of a call have one TTL and kind, and each goes out with its own.
func TestRenewalsOfACallAreOfOneTTLAndKind(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.link.Delay(10 * time.Millisecond)
		b.Renew(b.renewal(1000, 1, time.Minute))
		synctest.Wait()
		arrived := b.evaluations()
		for i, terms := range []string{"60000w", "5000w", "60000w", "60000r", "5000w#00", "60000w"} {
			renewal := b.renewal(i, 1, time.Minute+time.Duration(i)*time.Second)
			ttl, kind, _ := strings.Cut(terms, "000")
			renewal.TTL, renewal.Kind = wire.Millis(ttl+"000"), kind
			b.Renew(renewal)
		}
		time.Sleep(time.Second)
		require.Len(t, b.take(), 7)
		calls := map[string][]string{}
		for _, e := range arrived() {
			if e.command == "EVALSHA" {
				terms := e.args[1] + e.args[2]
				calls[terms] = append(calls[terms], holdsIn(e)...)
			}
		}
		require.Equal(t, map[string][]string{
			"60000w": {hold(1000), hold(0), hold(2), hold(5)}, "60000r": {hold(3)}, "5000w": {hold(1)}, "5000w#00": {hold(4)},
		}, calls)
	})
}
