package peer

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockBackoff is the value of redislock's own example.
const redislockBackoff = 100 * time.Millisecond

type redislockPeer struct {
	client *redis.Client
	lock   *redislock.Client
	ttl    time.Duration
}

func openRedislock(o Options) (Peer, error) {
	client := o.goRedis(o.Addrs[0])
	return &redislockPeer{client, redislock.New(client), o.TTL}, nil
}

func (p *redislockPeer) Lock(ctx context.Context, name string) (Hold, error) {
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)}
	for {
		l, err := p.lock.Obtain(ctx, name, p.ttl, retry)
		switch {
		case err == nil:
			return redislockHold{l, p.ttl}, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != context.DeadlineExceeded: // the TTL bounds the tries of one Obtain
			return nil, err
		}
	}
}

func (p *redislockPeer) Close() error { return p.client.Close() }

type redislockHold struct {
	*redislock.Lock
	ttl time.Duration
}

func (h redislockHold) Extend(ctx context.Context) error { return h.Refresh(ctx, h.ttl, nil) }
