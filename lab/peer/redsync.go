package peer

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis/rueidiscompat"
)

// redsyncPeer polls, with redsync's default delays.
type redsyncPeer struct {
	sync  *redsync.Redsync
	ttl   time.Duration
	close func() error
}

func openRedsyncRueidis(o Options) (Peer, error) {
	clients, err := dial(o)
	if err != nil {
		return nil, err
	}
	var pools []redsyncredis.Pool
	for _, c := range clients {
		pools = append(pools, redsyncrueidis.NewPool(rueidiscompat.NewAdapter(c)))
	}
	return &redsyncPeer{sync: redsync.New(pools...), ttl: o.TTL, close: func() error {
		closeAll(clients)
		return nil
	}}, nil
}

func openRedsyncGoRedis(o Options) (Peer, error) {
	var clients []*redis.Client
	var pools []redsyncredis.Pool
	for _, addr := range o.Addrs {
		c := o.goRedis(addr)
		clients, pools = append(clients, c), append(pools, redsyncgoredis.NewPool(c))
	}
	return &redsyncPeer{sync: redsync.New(pools...), ttl: o.TTL, close: func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}}, nil
}

// Lock continues after redsync has given up, which it does after 32 tries.
func (p *redsyncPeer) Lock(ctx context.Context, name string) (Hold, error) {
	m := p.sync.NewMutex(name, redsync.WithExpiry(p.ttl))
	for {
		err := m.LockContext(ctx)
		if err == nil {
			return redsyncHold{m}, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if _, taken := errors.AsType[*redsync.ErrTaken](err); !taken && !errors.Is(err, redsync.ErrFailed) {
			return nil, err
		}
	}
}

func (p *redsyncPeer) Close() error { return p.close() }

type redsyncHold struct{ *redsync.Mutex }

func (h redsyncHold) Release(ctx context.Context) error {
	_, err := h.UnlockContext(ctx)
	return err
}

func (h redsyncHold) Extend(ctx context.Context) error {
	_, err := h.ExtendContext(ctx)
	return err
}
