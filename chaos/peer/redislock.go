package peer

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/seed74116694/fencelock/fencing"
)

// redislockBackoff is the interval in an example of redislock's documentation.
const redislockBackoff = 100 * time.Millisecond

type redislocks struct {
	client *redis.Client
	locker *redislock.Client
	ttl    time.Duration
	keeper *keeper
}

func openRedislock(o Options) (Locks, error) {
	client := dialGoRedis(o, o.Addrs[0])
	return &redislocks{client, redislock.New(client), o.TTL, newKeeper(o.TTL)}, nil
}

func (l *redislocks) Lock(ctx context.Context, name string) (Hold, error) {
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)}
	lock, err := l.locker.Obtain(ctx, name, l.ttl, retry)
	if err != nil {
		return nil, err
	}
	stop := l.keeper.keep(func(ctx context.Context) bool {
		return !errors.Is(lock.Refresh(ctx, l.ttl, nil), redislock.ErrNotObtained)
	})
	return &redislockHold{lock, stop}, nil
}

func (l *redislocks) Close() {
	l.keeper.all.Wait()
	_ = l.client.Close()
}

type redislockHold struct {
	*redislock.Lock
	stop context.CancelFunc
}

// Held asks the server, as the example in redislock's documentation does.
func (h *redislockHold) Held(ctx context.Context) bool {
	ttl, err := h.TTL(ctx)
	return err == nil && ttl > 0
}

func (h *redislockHold) Release(ctx context.Context) error {
	h.stop()
	return h.Lock.Release(ctx)
}

func (h *redislockHold) Token() fencing.Token { return 0 }
func (h *redislockHold) Value() string        { return h.Lock.Token() }
