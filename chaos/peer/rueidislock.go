package peer

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/seed74116694/fencelock/fencing"
)

// rueidislocks has the options of the README's example for one server, and the TTL.
type rueidislocks struct{ locker rueidislock.Locker }

func openRueidislock(o Options) (Locks, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: o.Addrs,
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return o.Dial(ctx, addr)
			},
		},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    o.TTL,
	})
	if err != nil {
		return nil, err
	}
	return rueidislocks{locker}, nil
}

func (l rueidislocks) Lock(ctx context.Context, name string) (Hold, error) {
	held, release, err := l.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockHold{held, release}, nil
}

func (l rueidislocks) Close() { l.locker.Close() }

type rueidislockHold struct {
	held    context.Context
	release context.CancelFunc
}

func (h rueidislockHold) Held(context.Context) bool { return h.held.Err() == nil }

func (h rueidislockHold) Release(context.Context) error {
	h.release()
	return nil
}

func (h rueidislockHold) Token() fencing.Token { return 0 }
func (h rueidislockHold) Value() string        { return "" }
