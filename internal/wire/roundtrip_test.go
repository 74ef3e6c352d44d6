package wire_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// master is a server that runs the scripts with the requests of this package. What a request writes, the script reads,
// and what the script answers, this package reads.
type master struct {
	t      *testing.T
	client rueidis.Client
	keys   wire.Keyspace
	vote   wire.Vote
	heard  <-chan rueidis.PubSubMessage
	route  wire.Route
}

// onMasters runs a test on miniredis and on a real server, each as one of so many masters: without a number as a single
// master, and as one of three.
func onMasters(t *testing.T, test func(m *master), numbers ...int) {
	if len(numbers) == 0 {
		numbers = []int{1, 3}
	}
	servers := map[string]func(t *testing.T) rueidis.Client{
		"miniredis": func(t *testing.T) rueidis.Client { return testredis.NewMini(t).Client(t) },
		"server":    func(t *testing.T) rueidis.Client { return testredis.Start(t).Client(t) },
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			client := start(t)
			for _, masters := range numbers {
				t.Run(map[int]string{1: "single", 3: "one of three"}[masters], func(t *testing.T) {
					m := &master{t: t, client: client, keys: wire.NewKeyspace("p", masters)}
					require.NoError(t, m.command("FLUSHALL").Error())
					if masters > 1 {
						m.vote = wire.Vote{Proposal: 1, Seen: "id", Quarantine: "30000"}
						m.marker("id", "id", "run", "run", "until", "0")
					}
					m.listen()
					test(m)
				})
			}
		})
	}
}

func (m *master) command(args ...string) rueidis.RedisResult {
	return m.client.Do(context.Background(), m.client.B().Arbitrary(args...).Build())
}

func (m *master) marker(fields ...string) {
	require.NoError(m.t, m.command(append([]string{"HSET", m.keys.Marker}, fields...)...).Error())
}

func (m *master) listen() {
	const channel = "p:c:client"
	heard := make(chan rueidis.PubSubMessage, 16)
	c, done := m.client.Dedicate()
	m.t.Cleanup(done)
	c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(msg rueidis.PubSubMessage) { heard <- msg }})
	require.NoError(m.t, c.Do(context.Background(), c.B().Subscribe().Channel(channel).Build()).Error())
	m.heard, m.route = heard, wire.Published(channel)
}

func (m *master) message() wire.Message {
	m.t.Helper()
	select {
	case msg := <-m.heard:
		message := wire.ReadMessage(msg.Message)
		require.NotNil(m.t, message, msg.Message)
		return message
	case <-time.After(time.Minute):
		require.Fail(m.t, "no message")
		return nil
	}
}

func (m *master) call(script scripts.Name, args []string) rueidis.RedisResult {
	return m.callWith(script, m.keys.ForCall(m.keys.Of("n")), append([]string{m.vote.Arg()}, args...))
}

func (m *master) callWith(script scripts.Name, keys, args []string) rueidis.RedisResult {
	b := m.client.B().Eval().Script(scripts.Source(script)).Numkeys(int64(len(keys))).Key(keys...).Arg(args...)
	return m.client.Do(context.Background(), b.Build())
}

// about is call for the reply about one hold.
func (m *master) about(
	script scripts.Name, args []string, read func(rueidis.RedisResult) (wire.HoldReply, error),
) wire.HoldReply {
	m.t.Helper()
	h, err := read(m.call(script, args))
	require.NoError(m.t, err, "%s %q", script, args)
	require.Positive(m.t, h.Micros)
	return h
}

func (m *master) acquire(id string, order wire.Order, d wire.Details) wire.HoldReply {
	m.t.Helper()
	d.HandoffTTL, d.Meta = "20000", "meta of it"
	if d.Route == "" {
		d.Route = m.route
	}
	q := wire.Acquire{Hold: id, TTL: "40000", Order: order, Details: d.Text()}
	return m.about(scripts.Acquire, q.Args(nil), wire.ReadAcquire)
}

func (m *master) release(q wire.Release) wire.ReleaseReply {
	m.t.Helper()
	r, err := wire.ReadRelease(m.call(scripts.Release, q.Args(nil)))
	require.NoError(m.t, err)
	return r
}

func (m *master) renew(holds ...*wire.Renewal) []wire.Renewed {
	m.t.Helper()
	q, marker := wire.Renew(holds), ""
	if m.vote.Seen != "" {
		marker = m.keys.Marker
	}
	r, err := wire.ReadRenew(
		m.callWith(scripts.Renew, q.Keys(marker), append([]string{m.vote.Arg()}, q.Args()...)), len(holds))
	require.NoError(m.t, err)
	require.Positive(m.t, r.Micros)
	return r.Renewed
}

var (
	writes = wire.Details{Mode: fencing.Write}
	reads  = wire.Details{Mode: fencing.Read}
)

func TestAGrantAndItsRelease(t *testing.T) {
	onMasters(t, func(m *master) {
		granted := m.acquire(hold, wire.NoQueue, writes)
		require.Equal(m.t, wire.HoldReply{
			Status: wire.Granted, Token: granted.Token, Left: 40 * time.Second, Micros: granted.Micros,
		}, granted)

		refused := m.acquire(other, wire.NoQueue, reads)
		require.Equal(m.t, wire.Refused, refused.Status)
		require.Equal(m.t, &wire.Holder{
			Owner: hold, Hold: hold, Mode: fencing.Write, Count: 1, Meta: "meta of it",
			Remaining: refused.Holder.Remaining, Held: refused.Holder.Held,
		}, refused.Holder)
		require.Positive(m.t, refused.Holder.Remaining)

		key := m.keys.Of("n")
		require.Equal(m.t, []wire.Renewed{wire.RenewOK, wire.RenewGone}, m.renew(
			&wire.Renewal{Key: key, Hold: hold, TTL: "50000", Token: granted.Token},
			&wire.Renewal{Key: key, Hold: other, TTL: "50000", Token: granted.Token},
		))
		require.Equal(m.t, wire.WasGranted, m.release(wire.Release{Hold: hold}).Was)
		left := wire.Tombstone{TTL: "1000"}
		require.Equal(m.t, wire.WasGone, m.release(wire.Release{Hold: hold, Tombstone: left}).Was)
		require.Equal(m.t, wire.Tombstoned, m.acquire(hold, wire.NoQueue, writes).Status)
	})
}

func TestWaitersAndTheirMessages(t *testing.T) {
	onMasters(t, func(m *master) {
		const third = "01ARZ3NDEKTSV4RRFFQ69G5FAX"
		shared := writes
		shared.Block = 16
		granted := m.acquire(hold, wire.NoQueue, shared)
		require.Equal(m.t, granted.Token-15, granted.First, "a block")
		require.Equal(m.t, wire.Queued, m.acquire(other, wire.ByArrival, writes).Status)
		require.Equal(m.t, wire.Contended{Hold: hold}, m.message())
		renewal := wire.Renewal{Key: m.keys.Of("n"), Hold: hold, TTL: "40000", Token: granted.Token}
		require.Equal(m.t, []wire.Renewed{wire.RenewContended}, m.renew(&renewal))
		require.Equal(m.t, wire.Queued, m.acquire(third, wire.ByArrival, shared).Status)

		q := wire.Refresh{Route: m.route, Holds: []string{other, hold, "gone"}}
		r, err := wire.ReadRefresh(m.call(scripts.Refresh, q.Args(nil)), len(q.Holds))
		require.NoError(m.t, err)
		require.Positive(m.t, r.Left)
		require.Equal(m.t, []wire.RefreshedWaiter{
			{Status: wire.Queued}, {Status: wire.Granted, Token: granted.Token, Left: r.Waiters[1].Left}, {Status: wire.Absent},
		}, r.Waiters)

		m.release(wire.Release{Hold: hold})
		first, _ := m.message().(wire.Handoff)
		require.Equal(m.t, wire.Handoff{
			Hold: other, Token: first.Token, GrantedAt: first.GrantedAt, TTL: 20 * time.Second, Server: first.Server,
		}, first)
		require.Greater(m.t, first.Token, granted.Token)
		require.NotEmpty(m.t, first.Server)

		m.acquire(hold, wire.ByArrival, writes)
		m.release(wire.Release{Hold: other})
		second, _ := m.message().(wire.Handoff)
		require.Equal(m.t, third, second.Hold)
		require.Equal(m.t, second.Token-15, second.First)
		require.True(m.t, second.Contended)

		state, err := wire.ReadInspect(m.callWith(scripts.Inspect, m.keys.ForCall(m.keys.Of("n"))[:1], nil))
		require.NoError(m.t, err)
		require.Equal(m.t, []wire.Holder{{
			Hold: third, Owner: third, Mode: fencing.Write, Count: 1, Shared: true, Meta: "meta of it",
			Token: second.Token, Remaining: state.Holders[0].Remaining, Held: state.Holders[0].Held,
		}}, state.Holders)
		require.Equal(m.t, []wire.Waiter{{
			Hold: hold, Owner: hold, Mode: fencing.Write, Meta: "meta of it", Waited: state.Waiters[0].Waited,
		}}, state.Waiters)
		require.Equal(m.t, second.Token, state.Token)

		require.Equal(m.t, wire.WasWaiting, m.release(wire.Release{Hold: hold, Others: []string{third}}).Was)
		require.Equal(m.t, wire.WasGone, m.release(wire.Release{Hold: third}).Was)
	})
}

func TestJoins(t *testing.T) {
	onMasters(t, func(m *master) {
		const owner = "01ARZ3NDEKTSV4RRFFQ69G5FAZ"
		d := wire.Details{
			Mode: fencing.Write, HandoffTTL: "20000", Owner: owner, Route: m.route,
		}
		q := wire.Join{Hold: other, Owner: owner, Mode: fencing.Read, TTL: "40000", Details: d.Text()}
		join := func() wire.HoldReply { return m.about(scripts.Join, q.Args(nil), wire.ReadJoin) }
		require.Equal(m.t, wire.Absent, join().Status)
		granted := m.acquire(hold, wire.NoQueue, d)
		q.Token = granted.Token + 1
		require.Equal(m.t, wire.Absent, join().Status, "another hold of the owner")
		q.Token = granted.Token
		joined := join()
		require.Equal(m.t, wire.HoldReply{
			Status: wire.Granted, Token: granted.Token, Left: 40 * time.Second, Micros: joined.Micros, Count: 2,
			Mode: fencing.Write,
		}, joined)
		m.release(wire.Release{Hold: hold, Others: []string{other}})

		d.Mode = fencing.Read
		q.Token, q.Mode = m.acquire(hold, wire.NoQueue, d).Token, fencing.Write
		require.Equal(m.t, wire.OnlyReads, join().Status)
	})
}

func TestTheOperationsOfAQuorum(t *testing.T) {
	onMasters(t, func(m *master) {
		granted := m.acquire(other, wire.NoQueue, writes)
		raise := func(to fencing.Token) wire.HoldReply {
			return m.about(scripts.Raise, wire.Raise{Hold: other, Token: to}.Args(nil), wire.ReadRaise)
		}
		require.Equal(m.t, wire.ClockAhead, raise(granted.Token+1e9).Status)
		require.Equal(m.t, wire.Refused, raise(granted.Token-1).Status)
		raised := raise(granted.Token + 7)
		require.Equal(m.t, wire.Granted, raised.Status)
		require.Equal(m.t, granted.Token+7, raised.Token)

		yield := func() wire.HoldReply {
			return m.about(scripts.Yield, wire.Yield{Hold: other, Token: raised.Token}.Args(nil), wire.ReadYield)
		}
		require.Equal(m.t, wire.Queued, m.acquire(hold, wire.ByHold, writes).Status)
		require.Equal(m.t, wire.YieldRequest{Hold: other}, m.message(), "the older hold waits behind it")
		require.Equal(m.t, wire.Queued, yield().Status)
		require.Equal(m.t, hold, m.message().About())
		m.release(wire.Release{Hold: other, Others: []string{hold}})
		require.Equal(m.t, wire.Absent, yield().Status)

		regain := func(trusted bool) wire.HoldReply {
			d := wire.Details{Mode: fencing.Write, HandoffTTL: "20000", Route: m.route}
			q := wire.Regain{Hold: other, TTL: "40000", Token: raised.Token + 1e6, Details: d.Text(), Trusted: trusted}
			return m.about(scripts.Regain, q.Args(nil), wire.ReadRegain)
		}
		m.marker("until", "99999999999999")
		abstains := regain(false)
		require.Equal(m.t, wire.Abstains, abstains.Status)
		require.Positive(m.t, abstains.Left)
		require.Equal(m.t, wire.Abstains, m.acquire(hold, wire.NoQueue, writes).Status)
		regained := regain(true)
		require.Equal(m.t, wire.Granted, regained.Status)
		require.Equal(m.t, raised.Token+1e6, regained.Token)
		m.marker("until", "0")
		require.Equal(m.t, wire.Queued, m.acquire(hold, wire.ByHold, writes).Status)
		m.marker("id", "another")
		require.Equal(m.t, wire.Changed, regain(true).Status)
		renewal := wire.Renewal{Key: m.keys.Of("n"), Hold: other, TTL: "40000", Token: regained.Token}
		require.Equal(m.t, []wire.Renewed{wire.RenewStaleMarker}, m.renew(&renewal))
		require.Equal(m.t, wire.MoreReads, m.release(wire.Release{Hold: other}).More)
	}, 3)
}

func TestASecondUpgrade(t *testing.T) {
	onMasters(t, func(m *master) {
		const first, second = "01ARZ3NDEKTSV4RRFFQ69G5FAY", "01ARZ3NDEKTSV4RRFFQ69G5FAZ"
		m.acquire(hold, wire.NoQueue, reads)
		m.acquire(other, wire.NoQueue, reads)
		upgrade := writes
		upgrade.Converts = hold
		require.Equal(m.t, wire.Queued, m.acquire(first, wire.ByHold, upgrade).Status)
		upgrade.Converts = other
		require.Equal(m.t, wire.Rival, m.acquire(second, wire.ByHold, upgrade).Status)
	})
}
