package peer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// floorBatch keeps keys alive at the least cost: 200 of them in one script call, twice in a TTL.
type floorBatch struct {
	floorSet
	stop    context.CancelFunc
	done    sync.WaitGroup
	renewed atomic.Uint64
	mu      sync.Mutex
	held    []*batchHold
}

const batchSize = 200

// It returns the missing keys, by their place.
var expireAll = rueidis.NewLuaScript(`local gone = {}
for i, key in ipairs(KEYS) do
  if redis.call('PEXPIRE', key, ARGV[1]) == 0 then gone[#gone + 1] = i end
end
return gone`)

func openFloorBatch(o Options) (Peer, error) {
	f, err := openFloor(o)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &floorBatch{floorSet: floorSet{f}, stop: stop}
	b.done.Go(func() { b.renew(ctx, o.TTL/2) })
	return b, nil
}

func (b *floorBatch) Lock(ctx context.Context, name string) (Hold, error) {
	hold, err := b.floorSet.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	h := &batchHold{floorHold: hold.(*floorHold)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, h)
	return h, nil
}

func (b *floorBatch) renew(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		held := b.held
		b.mu.Unlock()
		for len(held) > 0 {
			n := min(batchSize, len(held))
			b.renewBatch(ctx, held[:n])
			held = held[n:]
		}
	}
}

func (b *floorBatch) renewBatch(ctx context.Context, batch []*batchHold) {
	keys := make([]string, len(batch))
	for i, h := range batch {
		keys[i] = h.name
	}
	gone, err := expireAll.Exec(b.context(ctx), b.clients[0], keys, []string{b.px}).AsIntSlice()
	b.renewed.Add(uint64(len(batch)))
	for _, h := range batch {
		if err != nil && ctx.Err() == nil {
			h.lost.Store(true)
		}
	}
	for _, place := range gone {
		batch[place-1].lost.Store(true)
	}
}

// Renewals returns how many keys were given a new expiry.
func (b *floorBatch) Renewals() uint64 { return b.renewed.Load() }

func (b *floorBatch) Close() error {
	b.stop()
	b.done.Wait()
	return b.floor.Close()
}

type batchHold struct {
	*floorHold
	lost atomic.Bool
}

func (h *batchHold) Lost() bool { return h.lost.Load() }
