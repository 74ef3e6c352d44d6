package transport_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// lateClient gets each batch to its queue late, as on a busy machine.
type lateClient struct {
	*tuned
	late    atomic.Int64 // of the next batch
	batches atomic.Int64
}

func (c *lateClient) Do(ctx context.Context, one rueidis.Completed) rueidis.RedisResult {
	c.batches.Add(1)
	time.Sleep(time.Duration(c.late.Swap(0)))
	return c.tuned.Do(ctx, one)
}

// A call that is posted behind an ordered one leaves behind it, however late that one gets to the client's queue, and
// without a wait for the answer. Behind other calls, and over a client with several connections, it does not wait.
func TestCallsBehindAnOrderedOne(t *testing.T) {
	const late, way = 20 * time.Millisecond, time.Second
	for name, c := range map[string]struct {
		ordered, tuned bool
		late           time.Duration
		waits          time.Duration
	}{
		"ordered":                      {ordered: true, tuned: true, late: late, waits: late},
		"ordered, at once":             {ordered: true, tuned: true},
		"ordered, but later than most": {ordered: true, tuned: true, late: way, waits: 50 * time.Millisecond},
		"not ordered":                  {tuned: true, late: late},
		"several connections":          {ordered: true, late: late},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := testredis.NewMini(t).NewLink()
				option := link.Option()
				option.AlwaysPipelining, option.PipelineMultiplex = true, -1
				client := &lateClient{tuned: dial(t, option)}
				var b *bed
				if c.tuned {
					b = newBed(t, client)
				} else {
					b = newBed(t, struct{ rueidis.Client }{client})
				}
				b.mustDo()
				require.Equal(t, c.tuned, b.Ordered("any"))
				link.Delay(way)
				var done outcomes
				client.late.Store(int64(c.late))
				client.batches.Store(0)
				first := done.call(0, true)
				first.Ordered = c.ordered
				began := b.now().Mono
				b.Post(first)
				synctest.Wait()
				b.Post(done.call(1, true))
				synctest.Wait()
				if c.waits > 0 {
					require.EqualValues(t, 1, client.batches.Load(), "the second one waits")
					time.Sleep(c.waits)
					synctest.Wait()
				}
				require.EqualValues(t, 2, client.batches.Load())
				require.Equal(t, c.waits, b.now().Mono-began)
				time.Sleep(10 * time.Second)
				for _, one := range done.take() {
					require.NoError(t, one.err)
				}
			})
		})
	}
}

// A batch that cannot be sent keeps no other from being tried.
func TestAnOrderedCallWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		option := link.Option()
		option.AlwaysPipelining, option.PipelineMultiplex = true, -1
		b := newBed(t, dial(t, option))
		b.mustDo()
		link.Refuse()
		link.Cut()
		synctest.Wait()
		var done outcomes
		for i := range 3 {
			call := done.call(i, true)
			call.Ordered = true
			b.Post(call)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		all := done.take()
		require.Len(t, all, 3)
		for _, one := range all {
			require.Error(t, one.err)
		}
	})
}
