package redisguard_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the server names scripts by it
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

var jobRounds = flag.Int("redisguard.jobs", 1, "how many orders are handed over for each step")

const (
	jobProcess = "REDISGUARD_JOB" // is set in the environment of a process: its errand as JSON
	jobTTL     = time.Second
)

// death is when a process is killed: when it is about to send a request with this text for that time, or has sent it.
type death struct {
	Text string
	Nth  int
	Sent bool
}

// atWork kills a process between its read and its write.
const atWork = "at work"

func requests(name scripts.Name) string {
	sum := sha1.Sum([]byte(scripts.Source(name))) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// deaths are the steps at which a producer, or a worker, is killed.
var deaths = map[string]map[string]death{
	"producer": {
		"before it locks":    {requests(scripts.Acquire), 1, false},
		"locking":            {requests(scripts.Acquire), 1, true},
		"at work":            {atWork, 1, false},
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
		"at work":                   {atWork, 1, false},
		"before it releases":        {requests(scripts.Release), 2, false},
		"releasing what it adopted": {requests(scripts.Release), 2, true},
	},
}

// errand is what a process does: it produces the order, or works on the message.
type errand struct {
	Addr, Queue, Order, Message string
	Death                       death
}

// dyingConn is a connection of a process that is killed.
type dyingConn struct {
	net.Conn
	death death
	sent  *atomic.Int32
	dying atomic.Bool
}

func (c *dyingConn) Write(b []byte) (int, error) {
	requests := bytes.Count(b, []byte(c.death.Text)) // a busy process sends several at once
	sent := int(c.sent.Add(int32(requests)))
	dies := sent-requests < c.death.Nth && c.death.Nth <= sent
	if dies && !c.death.Sent {
		die()
	}
	c.dying.Store(dies)
	n, err := c.Conn.Write(b)
	if dies {
		die()
	}
	return n, err
}

// Read returns no answer to the last request.
func (c *dyingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.dying.Load() {
		select {}
	}
	return n, err
}

// die does what kill -9 does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// TestJobProcess is a process of TestJobsOfProcesses.
func TestJobProcess(t *testing.T) {
	text := os.Getenv(jobProcess)
	if text == "" {
		t.Skip("only as a process of another test")
	}
	var e errand
	require.NoError(t, json.Unmarshal([]byte(text), &e))
	option, sent := testredis.ClientOption(e.Addr), new(atomic.Int32)
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		return &dyingConn{Conn: conn, death: e.Death, sent: sent}, err
	}
	s := openShop(t, option, e.Queue)
	step := s.step
	if e.Death.Text == atWork {
		step = func(context.Context, string) error {
			die()
			return nil
		}
	}
	if e.Message == "" {
		require.NoError(t, s.produce(t.Context(), e.Order, func(ctx context.Context) error { return step(ctx, e.Order) }))
	} else {
		require.NoError(t, s.work(t.Context(), e.Message, step))
	}
	t.Error("it was not killed")
}

// shop is a process that has orders, and their storage.
type shop struct {
	jobs
	guard *redisguard.Guard
}

func openShop(t *testing.T, option rueidis.ClientOption, queue string) *shop {
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	locker, err := rwlock.New(client, rwlock.WithTTL(jobTTL))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close() })
	guard, err := redisguard.New(client)
	require.NoError(t, err)
	return &shop{jobs{locker, client, queue, jobTTL}, guard}
}

// advance writes what was derived from a read, and counts the writes. A write of which another writer has not read is
// lost: then the number of steps is less than the number of writes.
var advance = redisguard.NewScript(`
redis.call('HSET', KEYS[1], 'steps', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'writes', 1)`)

// step advances the order by one step, under the lock in ctx.
func (s *shop) step(ctx context.Context, order string) error {
	fence, err := fencing.Require(ctx, order)
	if err != nil {
		return err
	}
	key := "order:{" + order + "}"
	if err := s.guard.Claim(ctx, fence, key); err != nil {
		return err
	}
	steps, err := s.client.Do(ctx, s.client.B().Hget().Key(key).Field("steps").Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	time.Sleep(time.Millisecond)
	_, err = s.guard.Do(ctx, fence, advance, []string{key}, []string{strconv.FormatInt(steps+1, 10)})
	return err
}

// message takes the next message of the queue, or "".
func (s *shop) message(ctx context.Context) (string, error) {
	message, err := s.client.Do(ctx, s.client.B().Rpop().Key(s.queue).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return message, err
}

// A producer hands its lock to a worker by a queue, and one of the two is killed at every step. Another process goes on
// with the order: it gets the lock, no write is lost, and the writes have the tokens of their order.
func TestJobsOfProcesses(t *testing.T) {
	server := testredis.Start(t)
	for _, source := range scripts.All() {
		_, err := server.Command("SCRIPT", "LOAD", source)
		require.NoError(t, err)
	}
	orders := 0
	for role, steps := range deaths {
		for step, death := range steps {
			for range *jobRounds {
				orders++
				order := fmt.Sprint("order/", orders)
				t.Run(fmt.Sprint(role, ", ", step), func(t *testing.T) {
					t.Parallel()
					s := openShop(t, testredis.ClientOption(server.Addr()), "jobs:"+order)
					handOver(t, s, errand{Addr: server.Addr(), Queue: s.queue, Order: order, Death: death}, role == "worker")
				})
			}
		}
	}
}

// handOver has one of the two processes killed, and goes on in its place.
func handOver(t *testing.T, s *shop, e errand, worker bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	produce := func() {
		again(t, func() error {
			return s.produce(ctx, e.Order, func(ctx context.Context) error { return s.step(ctx, e.Order) })
		})
	}
	next := func() string {
		message, err := s.message(ctx)
		require.NoError(t, err)
		return message
	}
	if worker {
		produce()
		e.Message = next()
	}
	kill(t, e)
	message := e.Message
	if !worker {
		if message = next(); message == "" {
			produce()
			message = next()
		}
	}
	var m job
	require.NoError(t, json.Unmarshal([]byte(message), &m))
	ran := false
	again(t, func() error {
		return s.work(ctx, message, func(ctx context.Context, order string) error {
			fence, err := fencing.Require(ctx, order)
			require.NoError(t, err)
			require.Greater(t, fence.Token, m.Ticket.Token)
			err = s.step(ctx, order)
			ran = ran || err == nil
			return err
		})
	})
	require.True(t, ran)

	key := "order:{" + e.Order + "}"
	state, err := s.client.Do(ctx, s.client.B().Hgetall().Key(key).Build()).AsIntMap()
	require.NoError(t, err)
	require.Equal(t, state["writes"], state["steps"], "a write was lost")
	require.GreaterOrEqual(t, state["writes"], int64(2))
	_, err = s.locker.Adopt(ctx, m.Ticket)
	require.ErrorIs(t, err, rwlock.ErrTicket)
	lease, err := s.locker.Lock(ctx, e.Order)
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
}

// again calls f again if its lease was lost, on a busy machine.
func again(t *testing.T, f func() error) {
	t.Helper()
	err := f()
	for errors.Is(err, rwlock.ErrLost) || errors.Is(err, fencing.ErrStale) || errors.Is(err, context.Canceled) {
		err = f()
	}
	require.NoError(t, err)
}

// kill runs a process that is killed on its errand.
func kill(t *testing.T, e errand) {
	t.Helper()
	text, err := json.Marshal(e)
	require.NoError(t, err)
	p := exec.Command(os.Args[0], "-test.run=^TestJobProcess$")
	p.Env = append(os.Environ(), jobProcess+"="+string(text))
	output, err := p.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", output)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signal() == syscall.SIGKILL, "%s", output)
	require.False(t, strings.Contains(string(output), "FAIL"), "%s", output)
}
