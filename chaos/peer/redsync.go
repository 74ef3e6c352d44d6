package peer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed74116694/fencelock/fencing"
)

// redsyncs has the defaults of redsync but for the expiry.
type redsyncs struct {
	clients []*redis.Client
	sync    *redsync.Redsync
	ttl     time.Duration
	keeper  *keeper
}

func openRedsync(o Options) (Locks, error) {
	l := &redsyncs{ttl: o.TTL, keeper: newKeeper(o.TTL)}
	var pools []redsyncredis.Pool
	for _, addr := range o.Addrs {
		client := dialGoRedis(o, addr)
		l.clients, pools = append(l.clients, client), append(pools, goredis.NewPool(client))
	}
	l.sync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncs) Lock(ctx context.Context, name string) (Hold, error) {
	m := l.sync.NewMutex(name, redsync.WithExpiry(l.ttl))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	h := &redsyncHold{Mutex: m, value: m.Value()}
	until := m.Until()
	h.until.Store(&until)
	h.stop = l.keeper.keep(func(ctx context.Context) bool {
		if ok, _ := m.ExtendContext(ctx); ok {
			until := m.Until()
			h.until.Store(&until)
		}
		return time.Now().Before(m.Until())
	})
	return h, nil
}

func (l *redsyncs) Close() {
	l.keeper.all.Wait()
	for _, client := range l.clients {
		_ = client.Close()
	}
}

type redsyncHold struct {
	*redsync.Mutex
	value string
	until atomic.Pointer[time.Time] // Mutex.Until, which an extension writes
	stop  context.CancelFunc
}

// Held looks at the time of validity, as redsync advises where it deprecates Mutex.Valid.
func (h *redsyncHold) Held(context.Context) bool { return time.Now().Before(*h.until.Load()) }

func (h *redsyncHold) Release(ctx context.Context) error {
	h.stop()
	_, err := h.UnlockContext(ctx)
	return err
}

func (h *redsyncHold) Token() fencing.Token { return 0 }
func (h *redsyncHold) Value() string        { return h.value }
