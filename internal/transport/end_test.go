package transport_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// lateLife is a context whose children end later than itself, as they may by a moment.
type lateLife struct {
	context.Context
	mu       sync.Mutex
	children []func()
}

func (l *lateLife) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.children = append(l.children, f)
	return func() bool { return false }
}

func (l *lateLife) Value(key any) any { return nil } // or the context package finds the parent's own children

func (l *lateLife) endChildren() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.children {
		end()
	}
	l.children = nil
}

// stuckClient says of each batch that it is on its way, and answers none before it is freed.
type stuckClient struct {
	rueidis.Client
	underWay chan struct{}
	freed    chan struct{}
}

func (c *stuckClient) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	c.underWay <- struct{}{}
	<-c.freed
	return rueidis.NewErrorResult(context.Canceled)
}

func (c *stuckClient) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	return slices.Repeat([]rueidis.RedisResult{c.Do(ctx, commands[0])}, len(commands))
}

// What is left when the engine gives up is not posted again: no other node has its slots. Its end is seen before that
// of the contexts that are made from it.
func TestNothingIsPostedAgainWhenTheEngineEnds(t *testing.T) {
	// After a failure what is urgent waits for 20 ms, and then one batch goes out; so what has to wait are many batches.
	const atOnce, waiting = 4, 10 * 256
	life := new(lateLife)
	client := &stuckClient{
		Client: testredis.NewMini(t).Client(t), underWay: make(chan struct{}, waiting), freed: make(chan struct{}),
	}
	b := newBed(t, client, func(c *transport.Config) {
		life.Context = c.Life
		c.Life = life
	})
	t.Cleanup(life.endChildren)
	var answered atomic.Int64
	post := func() {
		b.Post(transport.Call{
			Script: refresh, Keys: keysOf("any"), Urgent: true,
			To: transport.ReceiverFunc(func(rueidis.RedisResult, clock.Instant) { answered.Add(1) }),
		})
	}
	for range atOnce {
		post()
		<-client.underWay
	}
	for range waiting {
		post()
	}
	b.end()
	close(client.freed)
	select {
	case <-b.over():
	case <-time.After(patience):
		require.Fail(t, "what has to wait is posted again and again")
	}
	require.Less(t, answered.Load(), int64(atOnce+waiting), "there was something left")
}
