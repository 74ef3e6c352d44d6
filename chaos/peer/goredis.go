package peer

import (
	"context"
	"crypto/rand"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// dialGoRedis opens a client with the defaults of go-redis, except that it does not log each connection that fails.
func dialGoRedis(o Options, addr string) *redis.Client {
	logging.Disable()
	return redis.NewClient(&redis.Options{
		Addr:   addr,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return o.Dial(ctx, addr) },
	})
}

// keeper renews the holds of a library that leaves this to its user.
type keeper struct {
	every time.Duration
	all   sync.WaitGroup
}

// newKeeper renews three times in a TTL.
func newKeeper(ttl time.Duration) *keeper { return &keeper{every: ttl / 3} }

// keep calls renew until it returns false or stop is called.
func (k *keeper) keep(renew func(ctx context.Context) bool) (stop context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	k.all.Go(func() {
		tick := time.NewTicker(k.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if !renew(ctx) {
				return
			}
		}
	})
	return stop
}

func randomValue() string { return rand.Text() }
