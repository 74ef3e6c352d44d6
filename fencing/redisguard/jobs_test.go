package redisguard_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // the server names scripts by it
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

const (
	jobTTL = time.Second
	order  = "order/42"
)

// death is when a process dies: when it is about to send a request with this word, or when the server has got it.
type death struct {
	word string
	nth  int
	sent bool
}

func requests(name scripts.Name) string {
	sum := sha1.Sum([]byte(scripts.Source(name))) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// deaths are the steps at which a producer, or a worker, dies.
var deaths = map[string]map[string]death{
	"producer": {
		"before it locks":    {requests(scripts.Acquire), 1, false},
		"locking":            {requests(scripts.Acquire), 1, true},
		"at work":            {},
		"before it detaches": {requests(scripts.Renew), 1, false},
		"detaching":          {requests(scripts.Renew), 1, true},
		"detached":           {"LPUSH", 1, false},
		"queued":             {"LPUSH", 1, true},
	},
	"worker": {
		"before it adopts":          {requests(scripts.Acquire), 1, false},
		"adopting":                  {requests(scripts.Acquire), 1, true},
		"granted":                   {requests(scripts.Release), 1, false},
		"releasing the old hold":    {requests(scripts.Release), 1, true},
		"at work":                   {},
		"before it releases":        {requests(scripts.Release), 2, false},
		"releasing what it adopted": {requests(scripts.Release), 2, true},
	},
}

// shop is a process that has orders, and their storage.
type shop struct {
	*testing.T
	jobs
	guard *redisguard.Guard
}

func openShop(t *testing.T, link *testredis.Link) *shop {
	client := link.Client(t)
	locker := expect.NoError(rwlock.New(client, rwlock.WithTTL(jobTTL))).In(t)
	t.Cleanup(func() { _ = locker.Close() })
	return &shop{t, jobs{locker, client, "jobs", jobTTL}, newGuard(t, client)}
}

// advance writes what was derived from a read, and counts the writes; without a loss there are as many steps.
var advance = redisguard.NewScript(`
redis.call('HSET', KEYS[1], 'steps', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'writes', 1)`)

const orderKey = "order:{" + order + "}"

// step advances the order by one step, under the lock in ctx.
func (s *shop) step(ctx context.Context) error {
	fence, err := fencing.Require(ctx, order)
	if err != nil {
		return err
	}
	if err := s.guard.Claim(ctx, fence, orderKey); err != nil {
		return err
	}
	steps, err := s.client.Do(ctx, s.client.B().Hget().Key(orderKey).Field("steps").Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	_, err = s.guard.Do(ctx, fence, advance, []string{orderKey}, []string{strconv.FormatInt(steps+1, 10)})
	return err
}

// message takes the next message of the queue, or "".
func (s *shop) message() string {
	message, err := s.client.Do(s.Context(), s.client.B().Rpop().Key(s.queue).Build()).ToString()
	if !rueidis.IsRedisNil(err) {
		require.NoError(s, err)
	}
	return message
}

// die produces the order, or works on a message, until the process dies. Nothing leaves a dead process.
func (s *shop) die(link *testredis.Link, d death, message string) {
	ctx, end := context.WithCancel(s.Context())
	kill := func() {
		link.Refuse()
		link.Cut()
		end()
	}
	step := s.step
	if d.word == "" {
		step = func(context.Context) error { kill(); return errors.New("killed") }
	} else {
		drop, seen := link.DropNextCommand, 0
		if d.sent {
			drop = link.DropNextReply
		}
		struck := drop(func(cmd []string) bool {
			if slices.Contains(cmd, d.word) {
				seen++
			}
			return seen == d.nth
		})
		go func() { <-struck; kill() }()
	}
	if message == "" {
		_ = s.produce(ctx, order, step)
	} else {
		_ = s.work(ctx, message, func(ctx context.Context, _ string) error { return step(ctx) })
	}
	<-ctx.Done()
}

// A producer hands its lock to a worker by a queue, and one of the two dies at every step. Another process goes on with
// the order: it gets the lock, no write is lost, and the writes have the tokens of their order.
func TestJobsOfProcesses(t *testing.T) {
	for role, steps := range deaths {
		for step, d := range steps {
			t.Run(fmt.Sprint(role, ", ", step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { handOver(t, d, role == "worker") })
			})
		}
	}
}

// handOver lets one of the two processes die, and goes on in its place.
func handOver(t *testing.T, d death, worker bool) {
	mini, ctx := testredis.NewMini(t), t.Context()
	for _, source := range scripts.All() {
		expect.NoError(mini.Command("SCRIPT", "LOAD", source)).In(t)
	}
	s := openShop(t, mini.NewLink())
	produce := func() string {
		require.NoError(t, s.produce(ctx, order, s.step))
		return s.message()
	}
	message := ""
	if worker {
		message = produce()
	}
	doomed := mini.NewLink()
	openShop(t, doomed).die(doomed, d, message)
	if !worker {
		message = s.message()
	}
	if message == "" {
		message = produce()
	}
	var m job
	require.NoError(t, json.Unmarshal([]byte(message), &m))
	ran := false
	require.NoError(t, s.work(ctx, message, func(ctx context.Context, order string) error {
		require.Greater(t, expect.NoError(fencing.Require(ctx, order)).In(t).Token, m.Ticket.Token)
		ran = true
		return s.step(ctx)
	}))
	require.True(t, ran)

	state := expect.NoError(s.client.Do(ctx, s.client.B().Hgetall().Key(orderKey).Build()).AsIntMap()).In(t)
	require.Equal(t, state["writes"], state["steps"], "a write was lost")
	require.GreaterOrEqual(t, state["writes"], int64(2))
	_, err := s.locker.Adopt(ctx, m.Ticket)
	require.ErrorIs(t, err, rwlock.ErrTicket)
	require.NoError(t, expect.NoError(s.locker.Lock(ctx, order)).In(t).Release(ctx))
}
